#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# ddp-train from weights that other programs saved, on two ranks: what it takes, what it refuses, and
# what a resumed run does. tests/interop/weights has the files of the real libraries.

bats_require_minimum_version 1.5.0

load training

setup() {
  training_setup
  weights=$here/tests/interop/weights
  cat "$here"/README.md > book.txt
  gpt=(--model gpt --data "text:$work/book.txt" --width 16 --layers 2 --heads 2 --context 16 --batch 16)
  from=(--init-from "$weights/gpt2.safetensors" --init-map gpt2)
  mlp=(--width 8 --batch 8 --steps 2)
}

setting() { python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['settings'].get(sys.argv[2]))" "$1" "$2"; }

@test "two ranks start from GPT-2's weights, whether from safetensors, torch.save or a checkpoint of ours" {
  run -0 ranks 2 "${gpt[@]}" "${from[@]}" --lr 0.01 --steps 20 --report-dir report
  [[ $output == *"28 of 28 tensors start from $weights/gpt2.safetensors (map gpt2)"* ]]
  [[ $output == *"blocks.1.qkv.weight         [48, 16]   transformer.h.1.attn.c_attn.weight transposed"* ]]
  expected=$(parameters)
  [ "$(setting report/run.json init_from)" = "$weights/gpt2.safetensors" ]
  [ "$(setting report/run.json init_map)" = gpt2 ]
  run -0 ranks 2 "${gpt[@]}" --init-from "$weights/gpt2.pt" --init-map gpt2 --lr 0.01 --steps 20
  [[ $output == *"transformer.wte.weight"*" = "* || $output == *"lm_head.weight = transformer.wte.weight"* ]]
  [ "$(parameters)" = "$expected" ]
  "$bin/ddp-ckpt" convert "$weights/gpt2.pt" converted --prefix model/
  run -0 ranks 2 "${gpt[@]}" --init-from converted --init-map gpt2 --lr 0.01 --steps 20
  [ "$(parameters)" = "$expected" ]
  # Other initial values give another result.
  run -0 ranks 2 "${gpt[@]}" --lr 0.01 --steps 20
  [ "$(parameters)" != "$expected" ]
}

@test "a trained model goes back to the names of its source, and its average is the start that was evaluated" {
  run -0 ranks 2 "${gpt[@]}" "${from[@]}" --lr 0.01 --steps 3 --ema 0.5 --checkpoint-dir ckpt
  "$bin/ddp-ckpt" convert ckpt back.safetensors --prefix average/ --map gpt2
  run -0 ranks 2 "${gpt[@]}" --init-from back.safetensors --init-map gpt2 --steps 2
  [[ $output == *"28 of 28 tensors start from back.safetensors (map gpt2)"* ]]
  expected=$(parameters)
  run -0 ranks 2 "${gpt[@]}" --init-from ckpt --init-prefix average/ --steps 2
  [ "$(parameters)" = "$expected" ]
  [[ $output != *"--ema"* ]]
  run -0 ranks 2 "${gpt[@]}" --init-from ckpt --steps 2
  [ "$(parameters)" != "$expected" ]
  [[ $output == *"the run evaluated the averages of its weights (--ema), not these; --init-prefix average/ takes them"* ]]
}

@test "a resumed run does not read the weights again, and ends with the same parameters" {
  run -0 ranks 2 "${gpt[@]}" "${from[@]}" --steps 12 --freeze 'tokens.*,positions.*'
  [[ $output == *"frozen "*"2 of 28 parameter tensors"* ]]
  whole=$(parameters)
  cp "$weights/gpt2.safetensors" moved.safetensors
  run=("${gpt[@]}" --init-from moved.safetensors --init-map gpt2 --freeze 'tokens.*,positions.*' --checkpoint-dir ck
    --checkpoint-every 4)
  run -0 ranks 2 "${run[@]}" --steps 8
  rm moved.safetensors
  run -0 ranks 2 "${run[@]}" --steps 12
  [ "$(grep -c 'initial weights: moved.safetensors is not read, because the run resumes' <<< "$output")" -eq 1 ]
  [[ $output != *"tensors start from"* ]]
  [ "$(parameters)" = "$whole" ]
  run -0 "$bin/ddp-ckpt" show ck
  [[ $output == *'"freeze": "tokens.*,positions.*"'*'"init_from": "moved.safetensors"'* ]]
  # Not resuming, the run needs the file.
  refused 2 "there is no file or checkpoint 'moved.safetensors'" "${gpt[@]}" --init-from moved.safetensors
}

@test "the second phase of a fine-tune unfreezes layers in a run of its own" {
  run -0 ranks 2 "${gpt[@]}" "${from[@]}" --steps 4 --freeze 'tokens.*' --checkpoint-dir first
  run -0 ranks 2 "${gpt[@]}" --init-from first --steps 4 --optimizer adam --lr 0.001
  [[ $output == *"28 of 28 tensors start from $work/first/step-00000004"* ]]
  run -0 ranks 2 "${gpt[@]}" --init-from first --steps 4 --staleness 0 --freeze 'tokens.*'
  # Or by resuming, which keeps the state of the optimizer and continues the epoch.
  run -0 ranks 2 "${gpt[@]}" --steps 8 --checkpoint-dir first --freeze 'norm.*'
  [[ $output == *"checkpoint: freeze was tokens.* in the saved run and is norm.* now"*"resumed from "* ]]
  "$bin/ddp-ckpt" convert first/step-00000004 before.safetensors --prefix model/
  "$bin/ddp-ckpt" convert first/step-00000008 after.safetensors --prefix model/
  python3 - <<'PY'
import json, struct
def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size:][slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}
before, after = tensors("before.safetensors"), tensors("after.safetensors")
changed = {name for name in before if before[name] != after[name]}
assert changed == set(before) - {"norm.weight", "norm.bias"}, changed
PY
}

@test "float32 masters of bf16 weights take the values of the file" {
  run -0 ranks 2 "${gpt[@]}" "${from[@]}" --precision bf16 --param-type bf16 --optimizer adamw --lr 1e-30 --steps 1 \
    --checkpoint-dir ck
  run -0 "$bin/ddp-ckpt" convert ck ours.safetensors --prefix model/
  run -0 ranks 1 "${gpt[@]}" --init-from ours.safetensors --lr 1e-30 --steps 1
  [[ $output == *"blocks.0.qkv.weight "*" blocks.0.qkv.weight"$'\n'* ]] # float32, not converted
  saved=$(parameters)
  run -0 ranks 1 "${gpt[@]}" "${from[@]}" --lr 1e-30 --steps 1
  [ "$(parameters)" = "$saved" ]
}

@test "torchvision's resnet18 starts with a new head only if that is said" {
  cat > images.py <<'PY'
import h5py, numpy as np
with h5py.File("images.h5", "w") as file:
    file["x"] = np.random.default_rng(1).random((80, 3, 40, 40), dtype=np.float32)
    file["y"] = np.arange(80, dtype=np.int64) % 7
PY
  /usr/bin/python3 images.py || skip "no h5py in /usr/bin/python3 (apt-get install python3-h5py)"
  resnet=(--model resnet18 --width 4 --data hdf5:images.h5 --batch 8 --steps 2 --init-from "$weights/resnet18.pt"
    --init-map torchvision-resnet)
  refused 2 "use --init-prefix model/, which removes it from the names" "${resnet[@]}"
  refused 2 "2 tensors have other shapes (fc.weight is [7, 32], and [5, 32] in the file" "${resnet[@]}" \
    --init-prefix model/
  run -0 ranks 2 "${resnet[@]}" --init-prefix model/ --init-skip 'fc.*'
  [[ $output == *"120 of 122 tensors start from "*"conv1.weight (float16 to float32)"* ]]
  [[ $output =~ fc.weight\ +\[7,\ 32\]\ +initial\ value:\ skipped ]]
  run -0 ranks 2 "${resnet[@]}" --init-prefix model/ --init-strict matching
  [[ $output =~ fc.bias\ +\[7\]\ +initial\ value:\ \[5\]\ in\ the\ file ]]
}

@test "one sentence for every mistake, and nothing is trained" {
  refused 2 "no map or file 'gpt3'; the maps are gpt2" "${gpt[@]}" --init-from "$weights/gpt2.pt" --init-map gpt3
  refused 2 "no tensor of the model starts from" "${gpt[@]}" --init-from "$weights/gpt2.pt"
  refused 2 "'blocks.9.*' matches no tensor" "${gpt[@]}" "${from[@]}" --init-skip 'blocks.9.*'
  refused 2 "positions.weight is [8, 16], and [16, 16] in the file" "${gpt[@]}" --context 8 "${from[@]}"
  refused 2 "unknown strictness 'some'" "${gpt[@]}" "${from[@]}" --init-strict some
  refused 2 "add --init-from" "${gpt[@]}" --init-skip 'fc.*'
  refused 2 "'fc.*' matches no parameter" "${gpt[@]}" --freeze 'fc.*'
  refused 2 "leaves no parameter of the model to train" "${gpt[@]}" --freeze '*'
  printf 'a -> b c\n' > wrong.map
  refused 2 "line 1 of the map 'wrong.map'" "${gpt[@]}" --init-from "$weights/gpt2.pt" --init-map wrong.map
  head -c 30000 "$weights/gpt2.safetensors" > cut.safetensors
  refused 1 "'cut.safetensors' cannot be read: " "${gpt[@]}" --init-from cut.safetensors --init-map gpt2
  run -0 "$train" "${mlp[@]}" --checkpoint-dir own
  "$bin/ddp-ckpt" convert own own.pt --prefix model/
  "$bin/ddp-ckpt" convert own.pt converted --prefix model/
  refused 2 "use --init-from $work/converted/step-00000000 with a new --checkpoint-dir" "${mlp[@]}" --resume converted/step-00000000
  refused 2 "own.pt' is a file, not a checkpoint; to start from the weights in it, use --init-from" "${mlp[@]}" --resume own.pt
}
