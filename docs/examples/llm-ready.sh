# Succeeds once the server of this job answers; then clients find its address.
port=$((8000 + SLURM_JOB_ID % 1000))
curl -fs "http://localhost:$port/health" || exit 1
echo "http://$(hostname):$port" >"address.$SLURM_JOB_ID"
mv "address.$SLURM_JOB_ID" address
