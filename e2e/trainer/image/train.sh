#!/usr/bin/env bash
# The start script of a training as its user wrote it: nothing in it knows of Hajob or MindIO.
set -euo pipefail

exec torchrun \
    --nnodes "${NNODES:-1}" \
    --nproc_per_node "${NPROC_PER_NODE:-1}" \
    --node_rank "${NODE_RANK:-0}" \
    --master_addr "${MASTER_ADDR:-127.0.0.1}" \
    --master_port "${MASTER_PORT:-29500}" \
    -m e2e.trainer.train \
    --use-distributed-optimizer \
    --enable-high-availability \
    --enable-hbmfault-repair \
    --enable-worker-reboot \
    "$@"
