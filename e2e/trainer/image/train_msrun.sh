#!/usr/bin/env bash
# The start script of a training with MindFormers that calls msrun itself: at the end of a line that goes into a pipe.
export HCCL_CONNECT_TIMEOUT=3600

WORKER_NUM=8
LOCAL_WORKER_NUM=2
MASTER_ADDR=127.0.0.1
MASTER_PORT=8118
NODE_RANK=0

OUTPUT_DIR=${CHECKPOINT_PATH:-output}
RESUME=""
if ls "$OUTPUT_DIR"/checkpoint/rank_0/*.safetensors > /dev/null 2>&1; then
    RESUME="--load_checkpoint $OUTPUT_DIR/checkpoint --resume_training True"
fi

msrun --worker_num=$WORKER_NUM --local_worker_num=$LOCAL_WORKER_NUM \
    --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT --node_rank=$NODE_RANK \
    --log_dir=output/msrun_log --join=True --cluster_time_out=7200 \
    run_mindformer.py \
    --config configs/pretrain_toy.yaml \
    --use_parallel True \
    --run_mode train \
    --output_dir $OUTPUT_DIR \
    $RESUME \
    --options "$@" \
    | tee logs/train_toy_mindformers.log
