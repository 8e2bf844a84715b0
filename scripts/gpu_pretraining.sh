#!/usr/bin/env bash
# What a GPU says of pre-training and clicks, on an H200 with 16 cores: speed rows, the tables of Flickr8k and of the
# world, claims. Speed is measured first, alone; then both tables at once, in processes of their own; claims last.
#
#     scripts/gpu_pretraining.sh FLICKR8K [KEY=VALUE …]
#
# KEY=VALUE words are settings of every run; JOBS=n says how many runs a table has at once (8 if not given), ONLY which
# parts are made (speed flickr8k board world claims). Logs lie in runs/gpu; what was stopped goes on when called again,
# and what found no memory beside others is tried once more. Under MPS a run must not be killed while others compute:
# all of them would end.
set -uo pipefail
root=${1:?the folder of Flickr8k is missing: $0 FLICKR8K}
shift
parts=${ONLY:-speed flickr8k board world claims}
claims=(interbert-pretraining interbert-objectives interbert-segments interbert-overlap interbert-frameworks
  pixelbert-pixels pixelbert-sampling)
export OMP_NUM_THREADS=1 # one core a process: what it does beside the GPU
mkdir -p runs/gpu

part() { # NAME COMMAND …: with a log of its own
  [[ " $parts " == *" $1 "* ]] || return 0
  local begun=$SECONDS log=runs/gpu/$1.log
  if "${@:2}" > "$log" 2>&1; then echo "$1: done in $((SECONDS - begun)) s"; else echo "$1: failed, see $log" && return 1; fi
}

again() { # the same, twice: finished runs are not made anew
  part "$@" && part "$@"
}

part speed python -m benchmarks.gpu --only pretraining clicks --each 240 --minutes 9 || exit 1
table=(python scripts/results_pretraining.py --jobs "${JOBS:-8}")
seeds() { # TITLE NAME: the runs of a row, as the leaderboard takes them
  local found=(runs/results-pretraining/flickr8k/"$2"-[0-9]) IFS=,
  echo "$1=${found[*]}"
}
photos() { # InterBERT and Pixel-BERT behind SCAN, beside SCAN and IMRAM
  again flickr8k "${table[@]}" flickr8k --root "$root" --settings "$@" || return 1
  local first=runs/results-pretraining/flickr8k/scan-0 page=docs/results/leaderboard-flickr8k-pretraining
  part board python -m saccade leaderboard "$(seeds plain scan)" "$(seeds plain imram)" "$(seeds fine-tuned interbert)" \
    "$(seeds taught interbert-taught)" "$(seeds pixels pixelbert)" data=flickr8k root="$root" split=dev \
    --first $first --rerank 32 --blend 1 --device cuda -o $page.md --plot $page.png --json $page.json
}
photos "$@" &
again world "${table[@]}" world --settings "$@" &
failed=0
for job in $(jobs -p); do wait "$job" || failed=1; done
part claims python -m saccade claims "${claims[@]}" "$@" --data world --jobs "${JOBS:-8}" --lean -o docs/claims || failed=1
exit "$failed"
