#!/bin/sh
# A Slurm job of two machines with four ranks each:   sbatch configs/slurm.sh run.ini [section.key=value ...]
# Queued again by Slurm after a failure it goes on from the newest checkpoint. When its time has run out, submit it again
# with --resume behind the rest: to Slurm that is another job.
#SBATCH --job-name=weft
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -eu
config=$1
shift
resume=
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || resume=--resume
case " $* " in *" --resume"*) resume= ;; esac # it is there already
# With NCCL the ranks prove to one another that they are of this job.
export WEFT_JOB_SECRET="${WEFT_JOB_SECRET:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"
# MPICH takes its ranks from PMI-2, Open MPI from PMIx; `srun --mpi=list` says what there is.
# srun does not take the processors of a task from sbatch since Slurm 22.05.
exec srun --kill-on-bad-exit=1 --mpi="${WEFT_SRUN_MPI:-pmi2}" --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
    weft train "$config" --ranks "$SLURM_NTASKS" $resume "$@"
