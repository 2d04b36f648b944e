#!/bin/bash
#SBATCH --job-name=ddp --nodes=2 --ntasks-per-node=1 --exclusive --time=20
#SBATCH --signal=USR1@120 --output=ddp-%j.log

export MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export MASTER_PORT=$((29500 + SLURM_JOB_ID % 1000))
exec srun bash -c 'exec bash torchrun.sh --nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" \
  --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" --nproc-per-node="${WORKERS:-auto}" ddp.py'
