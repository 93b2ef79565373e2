#!/usr/bin/env python3
"""One rank of a PyTorch side of ranks.py: steps of a LLaMA under DDP or FSDP2 over gloo.

    torch_ranks.py '{"wrap": "ddp", "rank": 0, "world": 2, "store": FILE, "model": DIR, "ids": FILE, ...}'

The step is that of torch_step.py; each rank takes its rows of the batch. FSDP2 is fully_shard around each layer and
around the whole. Prints one object, as torch_step.py does."""

import json
import sys

import torch
import torch_step
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def own_rows(stream, job):
    each = job["rows"] // job["world"]
    for batch in stream:
        yield tuple(part[job["rank"] * each : (job["rank"] + 1) * each] for part in batch)


def wrap(model, job):
    if job["wrap"] == "ddp":
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (job["world"],))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    job = json.loads(sys.argv[1])
    torch.distributed.init_process_group("gloo", init_method="file://" + job["store"], rank=job["rank"],
                                         world_size=job["world"])
    model = wrap(torch_step.make_model(job), job)
    optimizer = torch_step.make_optimizer(model)
    stream = torch_step.batches(job["ids"], job["rows"], job["context"])
    measured = torch_step.measure(model, optimizer, own_rows(stream, job), job)
    torch.distributed.barrier()
    print(json.dumps(measured), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
