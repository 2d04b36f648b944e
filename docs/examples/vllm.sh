#!/bin/bash
#SBATCH --job-name=llm --nodes=1 --exclusive --time=24:00:00 --output=llm-%j.log
#SBATCH --signal=B:TERM@300
#MIRAGE --handover when-ready --grace 300 --lead 20m --done-exit-code none
#MIRAGE --health-command 'bash llm-ready.sh'

exec vllm serve "${MODEL:-Qwen/Qwen3-8B}" --port $((8000 + SLURM_JOB_ID % 1000)) --shutdown-timeout 240
