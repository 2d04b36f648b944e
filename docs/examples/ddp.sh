#!/bin/bash
#SBATCH --job-name=ddp --nodes=1 --exclusive --time=20
#SBATCH --signal=B:USR1@120 --output=ddp-%j.log

exec bash torchrun.sh --standalone --nproc-per-node="${WORKERS:-auto}" ddp.py
