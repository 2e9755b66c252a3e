# The measurements that `measure` runs in the guest.

# shellcheck shell=bash
. "$vm/cases-chip.sh"
. "$vm/cases-clients.sh"
. "$vm/cases-open.sh"
disk_len=33554432
blocks=$((disk_len / 512))
rounds=3

# Reads numbers, one a line. Prints the median and the range.
median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.4g", v[int((NR + 1) / 2)] }'; }
spread() { sort -n | awk 'NR == 1 { low = $1 } END { printf "%s to %s", low, $1 }'; }

# A failed program printed no number.
all_rounds_in() { [ "$(grep -c . "$1")" = "$rounds" ]; }

# Waits until the kernel's driver has a port's disk again and has finished probing it.
settled() {
  until_true 20 has_disk "$1"
  sleep 0.5
}

# ours PORT TRANSPORT DIRECTION DEPTH: MB/s of asmpatch's transport. Times only the transfers.
ours() { "$examples/rate" "$(port_path "$1")" "$2" "$3" 65536 "$4" $((disk_len / 65536)) | sed 's/.*, \(.*\) MB.*/\1/'; }

# theirs PORT DIRECTION COMMAND...: MB/s of sg_dd or sgp_dd over the same bytes. Times only the transfers, too.
theirs() {
  local port=$1 direction=$2
  shift 2
  if [ "$direction" = write ]; then set -- "$@" if=/dev/zero of="$(sg_of "$port")"; else set -- "$@" if="$(sg_of "$port")" of=/dev/null; fi
  "$@" bs=512 bpt=128 cdbsz=16 count="$blocks" time=1 2>&1 | sed -n 's/.*[ ,]\([0-9.]*\) MB\/sec.*/\1/p'
}

# compare PORT TRANSPORT DIRECTION DEPTH COMMAND...: runs both alternately, several rounds.
compare() {
  local port=$1 transport=$2 direction=$3 depth=$4 round
  shift 4
  rm -f ours theirs
  for ((round = 0; round < rounds; round++)); do
    settled "$port"
    ours "$port" "$transport" "$direction" "$depth" >>ours
    settled "$port"
    theirs "$port" "$direction" "$@" >>theirs
  done
  all_rounds_in ours
  all_rounds_in theirs
  say "$transport $direction(16) 64 KiB, depth $depth: asmpatch $(median <ours) MB/s ($(spread <ours)), $* $(median <theirs) MB/s ($(spread <theirs)), ratio $(awk -v a="$(median <ours)" -v b="$(median <theirs)" 'BEGIN { printf "%.2f", a / b }')"
}

# E4 should give 1 to 5 MB/s on silicon, which is 51 to 255 us for a command of 255 bytes. If commands take no time,
# the host's processors limit 31 tags.
e4_at_31_tags_against_one() {
  local us depth round
  for us in 0 51 255; do
    unit "gpu$us" "timing = { command-us = $us }"
    plug 0 "gpu$us"
    rm -f e4-1 e4-31
    for ((round = 0; round < rounds; round++)); do
      for depth in 1 31; do
        until_true 20 is_bound 0 uas
        "$asmpatch" bench --device "$(port_path 0)" --transport uas --path e4-255 --depth "$depth" --seconds 1 --repetitions 3 --json >e4.json
        grep -A 1 '"commands_per_s"' e4.json | sed -n 's/.*"median": \([0-9]*\).*/\1/p' >>"e4-$depth"
      done
    done
    all_rounds_in e4-1
    all_rounds_in e4-31
    say "E4-255 over UAS, $us us a command: 31 tags $(median <e4-31) commands/s ($(spread <e4-31)), 1 tag $(median <e4-1) ($(spread <e4-1)), ratio $(awk -v a="$(median <e4-31)" -v b="$(median <e4-1)" 'BEGIN { printf "%.2f", a / b }')"
    until_true 20 is_bound 0 uas
    unplug 0
  done
}

# rate PORT TRANSPORT KIND BYTES DEPTH COMMANDS: commands a second of asmpatch's transports.
rate() { "$examples/rate" "$(port_path "$1")" "${@:2}" | sed 's/ commands.*//'; }

# The host's cost on a unit without firmware, beside the same commands with firmware on the chip model.
plain_responder_beside_the_chip() {
  local round row
  local rows=('uas e4 255 1 3000' 'uas e4 255 31 6000' 'uas runtime-write 65536 1 400' 'bot e4 255 1 2000'
    'uas write 65536 1 1000' 'uas write 65536 8 1000' 'uas write 65536 31 1000' 'bot write 65536 1 1000')
  chip_unit expendable patched '[timing]
reenumerate-ms = 600'
  plain 0
  plug_chip 1 expendable uas
  for row in "${rows[@]}"; do
    rm -f plain chip
    for ((round = 0; round < rounds; round++)); do
      settled 0
      # shellcheck disable=SC2086
      rate 0 $row >>plain
      until_true 20 is_bound 1 uas
      until_true 20 has_no_medium 1
      # shellcheck disable=SC2086
      case $row in *' write '*) ;; *) rate 1 $row >>chip ;; esac
      # Start both units again.
      case $row in *runtime-write*) sleep 2 ;; esac
    done
    all_rounds_in plain
    if [ -e chip ]; then
      all_rounds_in chip
      say "$row: plain $(median <plain) commands/s ($(spread <plain)), chip $(median <chip) ($(spread <chip))"
    else
      say "$row: plain $(median <plain) commands/s ($(spread <plain))"
    fi
  done
  unplug 1
  unplug 0
}

# Both clients alternately, on the plain responder.
asmpatch_against_the_client_of_tinygrad_0_13_0() {
  local round row kind depth
  local rows=('e4 1 3000' 'e4 31 12000' 'write 1 1000' 'write 8 2000' 'write 31 2000')
  plain 0
  rm -f ours.* theirs.*
  for ((round = 0; round < rounds; round++)); do
    for row in "${rows[@]}"; do
      read -r kind depth commands <<<"$row"
      settled 0
      rate 0 uas "$kind" "$([ "$kind" = e4 ] && echo 255 || echo 65536)" "$depth" "$commands" >>"ours.$kind.$depth"
    done
    settled 0
    while read -r kind depth figure; do
      if [[ $kind = e4 || $kind = write ]]; then echo "$figure" >>"theirs.$kind.$depth"; fi
    done < <(client 0.13.0 0 rate)
    # The client doesn't give the kernel's driver back.
    echo "$(port_path 0):1.0" >/sys/bus/usb/drivers/uas/bind
  done
  for row in "${rows[@]}"; do
    read -r kind depth _ <<<"$row"
    all_rounds_in "ours.$kind.$depth"
    all_rounds_in "theirs.$kind.$depth"
    say "$kind, $depth in flight: asmpatch $(median <"ours.$kind.$depth") commands/s ($(spread <"ours.$kind.$depth")), tinygrad 0.13.0 $(median <"theirs.$kind.$depth") ($(spread <"theirs.$kind.$depth")), ratio $(awk -v a="$(median <"ours.$kind.$depth")" -v b="$(median <"theirs.$kind.$depth")" 'BEGIN { printf "%.2f", a / b }')"
  done
  unplug 0
}

# From 2 KiB on, libc copies with `rep movsb`, which QEMU emulates byte by byte: 64 KiB in 91 us instead of 16. Lets
# programs copy with vectors, whatever the length.
copy_by_vectors() { export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x1000000; }

# The open firmware's streams on the chip model, with one transfer in flight and with many.
open_firmwares_streams_with_one_and_with_many_in_flight() {
  local round row depth
  local rows=('e4 16384 512' 'tlp 1024 512' 'f0-write 65536 512' 'f0-write 65536 1024' 'f0-read 65536 1024'
    'f2-write 524288 512' 'f2-write 524288 1024' 'f2-write 524288 16384' 'f2-write 524288 65536')
  copy_by_vectors
  open_unit 0 streams
  for row in "${rows[@]}"; do
    rm -f depth-1 depth-32
    for ((round = 0; round < rounds; round++)); do
      # shellcheck disable=SC2086
      for depth in 1 32; do "$examples/open_rate" "$(port_path 0)" $row "$depth" | sed 's/ MB.*//' >>"depth-$depth"; done
    done
    all_rounds_in depth-1
    all_rounds_in depth-32
    say "$row (a stream, a transfer): 32 in flight $(median <depth-32) MB/s ($(spread <depth-32)), 1 in flight $(median <depth-1) ($(spread <depth-1)), ratio $(awk -v a="$(median <depth-32)" -v b="$(median <depth-1)" 'BEGIN { printf "%.2f", a / b }')"
  done
  unplug 0
}

# Both clients alternately, with the open image on the chip model. A row: kind, bytes, bytes a transfer, transfers in
# flight. `calls` are the figures of the library's own calls. No client can be faster than the chip model alone, in one
# process with asmpatch.
asmpatch_against_the_client_of_tinygrad_0_14_0() {
  local round row word kind bytes piece depth figure path
  local rows=('f0-write 65536 65536 1' 'f0-write 65536 4096 16' 'f0-read 65536 65536 1' 'f2-write 4096 4096 1'
    'f2-write 524288 524288 1' 'f2-write 524288 16384 16' 'tlp 1024 512 1' 'tlp 1024 512 16')
  copy_by_vectors
  open_unit 0 turns
  chip_unit alone open
  rm -f ours-* calls-* theirs-*
  for ((round = 0; round < rounds; round++)); do
    for row in "${rows[@]}"; do
      read -r kind bytes piece depth <<<"$row"
      "$examples/open_rate" "$(port_path 0)" "$kind" "$bytes" "$piece" "$depth" | sed 's/ MB.*//' >>"ours-${row// /-}"
      # `dword` reads one dword, `tlps` many.
      case $kind-$depth in tlp-1 | f*) piece=0 ;; esac
      "$examples/open_rate" "$(port_path 0)" "$kind" "$bytes" "$piece" 0 | sed 's/ MB.*//' >>"calls-${row// /-}"
    done
    while read -r word figure row; do
      if [ "$word" = MB/s ]; then echo "$figure" >>"theirs-${row// /-}"; fi
    done < <(client 0.14.0 0 rate "${rows[@]}")
  done
  for row in "${rows[@]}"; do
    read -r kind bytes piece depth <<<"$row"
    case $kind in
      f2-write) path=f2-out ;;
      tlp) path=tlp-read bytes=4 ;;
      *) path=$kind ;;
    esac
    host alone alone "$path" "$bytes" >alone
    all_rounds_in "ours-${row// /-}"
    all_rounds_in "calls-${row// /-}"
    all_rounds_in "theirs-${row// /-}"
    say "$row: asmpatch $(median <"ours-${row// /-}") MB/s ($(spread <"ours-${row// /-}")), its calls $(median <"calls-${row// /-}") ($(spread <"calls-${row// /-}")), tinygrad 0.14.0 $(median <"theirs-${row// /-}") ($(spread <"theirs-${row// /-}")), ratio $(ratio "ours-${row// /-}" "theirs-${row// /-}"), its calls' $(ratio "calls-${row// /-}" "theirs-${row// /-}"); the chip model alone $(median <alone) MB/s, so at most $(ratio alone "theirs-${row// /-}")"
  done
  unplug 0
}

# ratio ONE OTHER: the ratio of the medians of two files.
ratio() { awk -v a="$(median <"$1")" -v b="$(median <"$2")" 'BEGIN { printf "%.2f", a / b }'; }

uas_against_the_kernels() {
  local direction depth
  plain 0
  for direction in write read; do
    compare 0 uas "$direction" 1 sg_dd
    for depth in 8 16; do compare 0 uas "$direction" "$depth" sgp_dd "thr=$depth"; done
  done
  unplug 0
}

bulk_only_against_usb_storage() {
  local direction
  plain n
  for direction in write read; do compare n bot "$direction" 1 sg_dd; done
  unplug n
}

# cpu COMMAND...: prints user and system seconds of a command.
cpu() { local TIMEFORMAT='%U %S'; { time "$@" >/dev/null 2>&1; } 2>&1; }

# Measures many small reads, less the same program without reads.
processor_time_per_command() {
  local transport depth count=4000
  plain 0
  for transport in uas bot; do
    for depth in 1 16; do
      [ "$transport $depth" != 'bot 16' ] || continue
      rm -f many none
      for ((round = 0; round < rounds; round++)); do
        settled 0
        cpu "$examples/rate" "$(port_path 0)" "$transport" read 512 "$depth" "$count" >>many
        settled 0
        cpu "$examples/rate" "$(port_path 0)" "$transport" read 512 "$depth" 0 >>none
      done
      cpu_line "asmpatch, $transport, depth $depth" "$count"
    done
  done
  settled 0
  rm -f many none
  for ((round = 0; round < rounds; round++)); do
    cpu sg_dd if="$(sg_of 0)" of=/dev/null bs=512 bpt=1 cdbsz=16 count="$count" >>many
    cpu sg_dd if="$(sg_of 0)" of=/dev/null bs=512 bpt=1 cdbsz=16 count=1 >>none
  done
  cpu_line 'kernel uas and sg_dd, depth 1' "$count"
  unplug 0
}
cpu_line() {
  say "CPU per READ(16) of 512 bytes, $1: $(awk -v n="$2" -v u="$(cut -d ' ' -f 1 many | median)" -v s="$(cut -d ' ' -f 2 many | median)" -v u0="$(cut -d ' ' -f 1 none | median)" -v s0="$(cut -d ' ' -f 2 none | median)" 'BEGIN { printf "user %.1f us, system %.1f us", (u - u0) / n * 1e6, (s - s0) / n * 1e6 }')"
}

# profile TRANSPORT DEPTH: processor time of many small reads by module, then by function.
profile() {
  settled 0
  perf record -q -F 2000 -e cpu-clock -o profile "$examples/rate" "$(port_path 0)" "$1" read 512 "$2" 8000
  say "CPU profile of READ(16) of 512 bytes, $1, depth $2:"
  shares dso 6
  shares symbol 16
}
# shares KEY COUNT: prints the first lines of a profile.
shares() {
  perf report -i profile --stdio -q --no-children --sort "$1" 2>/dev/null | sed '/^ *$/d; s/ *- *- *$//' | head -n "$2" |
    while IFS= read -r line; do say "  $line"; done
}

processor_time_by_function() {
  plain 0
  profile bot 1
  profile uas 1
  profile uas 16
  unplug 0
}

# flashed MS PORT...: seconds that `flash --all` takes for new units at these ports. Their times are a flash chip's, and
# they restart within MS.
flashed() {
  local port began ended timing="[timing]
erase-sector-ms = 45
program-page-us = 400
reenumerate-ms = $1"
  shift
  for port in "$@"; do
    unit "many$port" "serial = \"MANY$port\"
$timing"
    plug "$port" "many$port"
  done
  for port in "$@"; do until_true 30 has_sg "$port"; done
  sleep 1
  rm -rf asmpatch-backup-*
  began=$EPOCHREALTIME
  "$asmpatch" flash patched.bin --all --yes --unproven >&2
  ended=$EPOCHREALTIME
  for port in "$@"; do unplug "$port"; done
  awk -v a="$began" -v b="$ended" 'BEGIN { printf "%.2f\n", b - a }'
}

# flashed_together NAME MS PORT...: all of these ports against the first of them, alternately, several rounds.
flashed_together() {
  local name=$1 ms=$2 round
  shift 2
  rm -f one all
  for ((round = 0; round < rounds; round++)); do
    flashed "$ms" "$1" >>one
    flashed "$ms" "$@" >>all
  done
  say "flash --all, $name: one unit $(median <one) s ($(spread <one)), $# units $(median <all) s ($(spread <all)), ratio $(awk -v a="$(median <all)" -v b="$(median <one)" 'BEGIN { printf "%.2f", a / b }')"
}

# Linux handles one hub's ports in sequence: 0.15 s for each that a unit leaves, and 0.3 s for each at which one
# arrives. So measure both: each unit on its own controller, and all on one hub. On the hub the units stay away until
# Linux has seen all of them leave. QEMU's xHCI answers no transfer to a former device, which would cost 5 s each.
eight_units_flashed_at_once_against_one() {
  unit source
  plug 0 source
  until_true 20 is_bound 0 uas
  "$asmpatch" backup --device "$(port_path 0)" -o source
  "$asmpatch" patch source/firmware.bin -o patched.bin
  unplug 0
  flashed_together 'each on a controller of its own' 1000 o0 o1 o2 o3 o4 o5 o6 o7
  flashed_together 'all on one hub' 2000 0 1 2 3 4 5 6 7
}

# seconds COMMAND...: prints how long a command takes.
seconds() {
  local began=$EPOCHREALTIME
  "$@" >&2
  awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f\n", b - a }'
}

# Flashes the open image over itself, and the patched image over it, with backup, both readings and readback.
flash_through_registers() {
  local round image
  rm -f took-*
  for ((round = 0; round < rounds; round++)); do
    for image in open patched; do
      chip_unit slow open "$flash_times"
      plug 0 slow
      until_true 20 test -e "$(device_of 0)/product"
      seconds "$asmpatch" flash "$images/$image.bin" --device "$(port_path 0)" --yes --force >>"took-$image"
      unplug 0
    done
  done
  for image in open patched; do
    all_rounds_in "took-$image"
    say "flash through registers, $(stat -c %s "$images/$image.bin") bytes: $(median <"took-$image") s ($(spread <"took-$image"))"
  done
}

pcie_on_a_tree_of_five_devices() {
  local round image
  for image in patched open; do
    rm -f took
    chip_unit tree "$image" "$(cat "$root/tests/cli/pcie.in/tree/bridge.toml")"
    plug 0 tree
    until_true 20 test -e "$(device_of 0)/product"
    [ "$image" = open ] || until_true 20 is_bound 0 uas
    sleep 1
    for ((round = 0; round < rounds; round++)); do
      seconds "$asmpatch" pcie --device "$(port_path 0)" >>took
      [ "$image" = open ] || until_true 20 is_bound 0 uas
    done
    all_rounds_in took
    say "pcie on five devices, $image: $(median <took) s ($(spread <took))"
    unplug 0
  done
}

runtime_figures=()
if [ ${#open_cases[@]} -gt 0 ]; then runtime_figures+=(flash_through_registers pcie_on_a_tree_of_five_devices); fi
if [ -e "$images/patched.bin" ]; then runtime_figures+=(plain_responder_beside_the_chip); fi
if has_runtime 0.13.0; then runtime_figures+=(asmpatch_against_the_client_of_tinygrad_0_13_0); fi
if [ -e "$images/open.bin" ] && has_runtime 0.14.0; then runtime_figures+=(asmpatch_against_the_client_of_tinygrad_0_14_0); fi
if [ -e "$images/open.bin" ]; then runtime_figures+=(open_firmwares_streams_with_one_and_with_many_in_flight); fi
for figure in "${runtime_figures[@]}" e4_at_31_tags_against_one uas_against_the_kernels bulk_only_against_usb_storage \
  processor_time_per_command processor_time_by_function eight_units_flashed_at_once_against_one; do
  run_case "$figure"
done
finish
