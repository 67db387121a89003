#!/usr/bin/env bash
# The start script of a training as its user wrote it for four nodes with two chips each.
# Nothing in it knows of Hajob or MindIO; arguments given to it come last and win.
set -euo pipefail

checkpoints=${CHECKPOINT_PATH:-checkpoints}

exec torchrun \
    --nnodes "${NNODES:-4}" \
    --nproc_per_node "${NPROC_PER_NODE:-2}" \
    --master_addr "${MASTER_ADDR:-127.0.0.1}" \
    --master_port "${MASTER_PORT:-29500}" \
    -m e2e.trainer.train \
    --tensor-model-parallel-size 2 \
    --micro-batch-size 4 \
    --train-iters "${TRAIN_ITERS:-400}" \
    --step-time-ms "${STEP_TIME_MS:-50}" \
    --use-distributed-optimizer \
    --enable-high-availability \
    --enable-hbmfault-repair \
    --enable-worker-reboot \
    --save "$checkpoints" \
    --load "$checkpoints" \
    --log-dir "$checkpoints/log" \
    "$@"
