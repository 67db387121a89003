#!/usr/bin/env bash
# The start script of a training as its user wrote it on one node, like most of those that come with MindSpeed-LLM:
# its own sizes and addresses, a launcher at the end of a line, a log that goes into a pipe.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True

NPUS_PER_NODE=2
MASTER_ADDR=localhost
MASTER_PORT=6000
NNODES=1
NODE_RANK=0
WORLD_SIZE=$(($NPUS_PER_NODE*$NNODES))

CKPT_DIR=${CHECKPOINT_PATH:-checkpoints}

TP=2
PP=1

DISTRIBUTED_ARGS="
    --nproc_per_node $NPUS_PER_NODE \
    --nnodes $NNODES \
    --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT
"

GPT_ARGS="
    --use-mcore-models \
    --tensor-model-parallel-size ${TP} \
    --pipeline-model-parallel-size ${PP} \
    --sequence-parallel \
    --num-layers 2 \
    --seq-length 4096 \
    --max-position-embeddings 4096 \
    --micro-batch-size 4 \
    --train-iters ${TRAIN_ITERS:-400} \
    --step-time-ms ${STEP_TIME_MS:-50} \
    --bf16 \
    --use-distributed-optimizer \
    --enable-high-availability \
    --enable-hbmfault-repair \
    --enable-worker-reboot
"

# An array: a process node puts this machine's directory in the place of /ckpt, and that may have blanks.
OUTPUT_ARGS=(
    --log-interval 1
    --eval-interval 100
    --eval-iters 2
    --save "$CKPT_DIR"
    --load "$CKPT_DIR"
    --log-dir "$CKPT_DIR/log"
)

torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    "${OUTPUT_ARGS[@]}" \
    --distributed-backend nccl \
    "$@" \
    | tee logs/train_toy_gpt_4K_ptd.log
