#!/bin/bash
#SBATCH --job-name=train --nodes=1 --exclusive --time=20
#SBATCH --signal=B:USR1@120 --output=train-%j.log

exec python3 train.py
