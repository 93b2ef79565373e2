#!/bin/sh
# Two machines, two ranks on each:   configs/two-hosts.sh HOST HOST run.ini [section.key=value ...]
# Both see run.ini, the model, the data and [run] out under the same paths, have the same weft and plugins, and can be
# reached with ssh without a password. MPICH; with Open MPI: mpiexec.openmpi -host "$1:2,$2:2" -n 4
set -eu
hosts=$1:2,$2:2
shift 2
# With NCCL the ranks prove to one another that they are of this job.
export WEFT_JOB_SECRET="${WEFT_JOB_SECRET:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"
exec mpiexec.mpich -launcher ssh -hosts "$hosts" -n 4 weft train "$@" --ranks 4
