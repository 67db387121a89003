#!/usr/bin/env bash
# The start script of a training with MindFormers, as most of those are: msrun at the end of a line that goes into a pipe.
export HCCL_CONNECT_TIMEOUT=3600

WORKER_NUM=8
LOCAL_WORKER_NUM=2
MASTER_ADDR=127.0.0.1
MASTER_PORT=8118
NODE_RANK=0

CKPT_DIR=${CHECKPOINT_PATH:-checkpoints}

msrun --worker_num=$WORKER_NUM --local_worker_num=$LOCAL_WORKER_NUM \
    --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT --node_rank=$NODE_RANK \
    --log_dir=output/msrun_log --join=${JOIN:-True} --cluster_time_out=7200 \
    pretrain_gpt.py \
    --tensor-model-parallel-size 2 \
    --micro-batch-size 4 \
    --train-iters ${TRAIN_ITERS:-400} \
    --step-time-ms ${STEP_TIME_MS:-50} \
    --steps-per-epoch 50 \
    --log-dir $CKPT_DIR/log \
    "$@" \
    | tee logs/train_toy_mindformers.log
