#!/usr/bin/env bash
# The start script of a training with TaskD, as its users write it for MindCluster: the manager in the background on node
# rank 0, torchrun with TaskD's patch on every node, sizes and addresses from the environment.
export CUDA_DEVICE_MAX_CONNECTIONS=1

if [ "$RANK" = 0 ]; then
    python3 manager.py &
fi

# shellcheck disable=SC2086 # as in the scripts that people have
$TORCHRUN \
    --nproc_per_node $LOCAL_WORLD_SIZE \
    --nnodes $((WORLD_SIZE / LOCAL_WORLD_SIZE)) \
    --node_rank $RANK \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT \
    pretrain_gpt.py \
    --use-mcore-models \
    --sequence-parallel \
    --num-layers 2 \
    --seq-length 4096 \
    --max-position-embeddings 4096 \
    --micro-batch-size 4 \
    --bf16 \
    --use-distributed-optimizer \
    --enable-high-availability \
    --enable-hbmfault-repair \
    --enable-worker-reboot \
    --log-interval 1 \
    --eval-interval 100 \
    --eval-iters 2 \
    --distributed-backend nccl \
    "$@"
