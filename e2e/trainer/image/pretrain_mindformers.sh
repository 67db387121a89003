#!/usr/bin/env bash
# The start script of a training with MindFormers: its launcher script, a configuration, and the newest checkpoint if
# there is one. It returns at once, because that launcher does not join.
export HCCL_CONNECT_TIMEOUT=3600
export MS_ENABLE_TFT='{TTP: 1, ARF: 1}'

OUTPUT_DIR=${CHECKPOINT_PATH:-output}
RESUME=""
if ls "$OUTPUT_DIR"/checkpoint/rank_0/*.safetensors > /dev/null 2>&1; then
  RESUME="--load_checkpoint $OUTPUT_DIR/checkpoint --resume_training True"
fi

bash scripts/msrun_launcher.sh "run_mindformer.py --config configs/pretrain_toy.yaml \
 --use_parallel True --run_mode train --output_dir $OUTPUT_DIR $RESUME --options $*" 8
