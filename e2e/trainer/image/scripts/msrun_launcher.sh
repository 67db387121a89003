#!/usr/bin/env bash
# What the documents of MindFormers start a training with: msrun_launcher.sh "COMMAND" [workers]. Defaults of its own,
# no --join, the command put together and evaluated; one worker runs without msrun.
EXECUTE_ORDER=$1
WORKER_NUM=${2:-8}
MSRUN_CMD="msrun --worker_num=$WORKER_NUM --local_worker_num=$WORKER_NUM \
 --master_port=8118 --log_dir=output/msrun_log \
 --join=False --cluster_time_out=7200 --bind_core=True"
ulimit -u unlimited 2> /dev/null
if [ "$WORKER_NUM" -eq 1 ]; then
  echo "Single worker: use python instead of msrun_launcher.sh."
  exit 0
fi
echo "Running Command: $MSRUN_CMD $EXECUTE_ORDER"
eval $MSRUN_CMD $EXECUTE_ORDER
