# What `measure` runs in the guest.

# shellcheck shell=bash
expendable='behind = { ssd = { bytes = 16777216 } }
serial = "EXPENDABLE"'
blocks=32768
rounds=3

# rate COMMAND...: MB/s of a command that moves the whole disk, by the guest's clock, median of the rounds.
rate() {
  local round began
  for ((round = 0; round < rounds; round++)); do
    began=$EPOCHREALTIME
    "$@" >/dev/null 2>&1
    awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", 16777216 / (b - a) / 1e6 }'
  done | sort -n | sed -n "$(((rounds + 1) / 2))p"
}

# ours PORT TRANSPORT DIRECTION DEPTH: MB/s of asmpatch's transport over the same bytes, median of the rounds.
ours() {
  local round
  for ((round = 0; round < rounds; round++)); do
    "$disk_rate" "$(port_path "$1")" "$2" "$3" 65536 "$4" 256 | sed 's/.*, \(.*\) MB.*/\1/'
  done | sort -n | sed -n "$(((rounds + 1) / 2))p"
}

compare() { say "$1: asmpatch $2 MB/s, kernel and $3 $4 MB/s, ratio $(awk -v a="$2" -v b="$4" 'BEGIN { printf "%.2f", a / b }')"; }

e4_at_31_tags_against_one() {
  local depth
  unit gpu
  plug 0 gpu
  until_true 20 is_bound 0 uas
  for depth in 1 31; do
    "$asmpatch" bench --device "$(port_path 0)" --transport uas --path e4-255 --depth "$depth" --seconds 2 --repetitions 3 --json >"e4-$depth.json"
    say "E4-255 over UAS, depth $depth: $(grep -A 1 '"commands_per_s"' "e4-$depth.json" | sed -n 's/.*"median": \([0-9.]*\).*/\1/p') commands/s"
  done
  unplug 0
}

uas_against_the_kernels() {
  local pattern=/mnt/pattern depth
  unit fast "$expendable"
  plug 0 fast
  until_true 20 has_disk 0
  local node
  head -c 16777216 /dev/urandom >"$pattern"
  node=$(sg_of 0)
  compare 'UAS, WRITE(16) 64 KiB, depth 1' "$(ours 0 uas write 1)" 'sg_dd' \
    "$(until_true 20 has_disk 0; rate sg_dd if="$pattern" of="$(sg_of 0)" bs=512 bpt=128 cdbsz=16 count=$blocks)"
  compare 'UAS, READ(16) 64 KiB, depth 1' "$(ours 0 uas read 1)" 'sg_dd' \
    "$(until_true 20 has_disk 0; rate sg_dd if="$(sg_of 0)" of=/dev/null bs=512 bpt=128 cdbsz=16 count=$blocks)"
  for depth in 8 16; do
    compare "UAS, WRITE(16) 64 KiB, depth $depth" "$(ours 0 uas write $depth)" "sgp_dd thr=$depth" \
      "$(until_true 20 has_disk 0; rate sgp_dd if="$pattern" of="$(sg_of 0)" bs=512 bpt=128 cdbsz=16 count=$blocks thr=$depth)"
    compare "UAS, READ(16) 64 KiB, depth $depth" "$(ours 0 uas read $depth)" "sgp_dd thr=$depth" \
      "$(until_true 20 has_disk 0; rate sgp_dd if="$(sg_of 0)" of=/dev/null bs=512 bpt=128 cdbsz=16 count=$blocks thr=$depth)"
  done
  unplug 0
}

bulk_only_against_usb_storage() {
  unit plain "$expendable"
  plug n plain
  until_true 20 has_disk n
  [ -e pattern ] || head -c 16777216 /dev/urandom >pattern
  compare 'Bulk-Only, WRITE(16) 64 KiB' "$(ours n bot write 1)" 'sg_dd' \
    "$(until_true 20 has_disk n; rate sg_dd if=pattern of="$(sg_of n)" bs=512 bpt=128 cdbsz=16 count=$blocks)"
  compare 'Bulk-Only, READ(16) 64 KiB' "$(ours n bot read 1)" 'sg_dd' \
    "$(until_true 20 has_disk n; rate sg_dd if="$(sg_of n)" of=/dev/null bs=512 bpt=128 cdbsz=16 count=$blocks)"
  unplug n
}

eight_units_flashed_at_once_against_one() {
  local timing='[timing]
erase-sector-ms = 45
program-page-us = 400' port one began
  unit source
  plug 0 source
  until_true 20 is_bound 0 uas
  "$asmpatch" backup --device "$(port_path 0)" -o source
  "$asmpatch" patch source/firmware.bin -o patched.bin
  unplug 0
  for count in 1 8; do
    for ((port = 0; port < count; port++)); do
      unit "many$port" "serial = \"MANY$port\"
$timing"
      plug "$port" "many$port"
    done
    for ((port = 0; port < count; port++)); do until_true 30 is_bound "$port" uas; done
    began=$EPOCHREALTIME
    "$asmpatch" flash patched.bin --all --yes
    one=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
    say "flash --all of $count: $one s"
    for ((port = 0; port < count; port++)); do unplug "$port"; done
  done
}

for figure in e4_at_31_tags_against_one uas_against_the_kernels bulk_only_against_usb_storage \
  eight_units_flashed_at_once_against_one; do
  run_case "$figure"
done
finish
