# Cases on units whose firmware runs from the reset vector. The images are the vendor's unchanged (stock), with the
# default patches (patched), and with the long E4, too (extended), and the open firmware.

# shellcheck shell=bash

# chip_unit NAME IMAGE [TOML]: makes a new unit that runs one of $images.
chip_unit() {
  unit "$1"
  host image "$1" "$images/$2.bin" "${1^^}"
  host file "$1" bridge.toml "$(base64 -w 0 <<<"${3:-}")"
}

# plug_chip PORT UNIT DRIVER: waits until the kernel has probed the unit. Each unanswered command would take it 30 s.
plug_chip() {
  plug "$1" "$2"
  until_true 20 is_bound "$1" "$3"
  until_true 20 has_no_medium "$1"
}
# Without a medium the kernel makes a removable disk of no blocks.
has_no_medium() {
  local port device size
  locate "$1"
  set -- "$device"/*:1.0/host*/target*/*/block/sd*
  read -r size <"$1/size" && [ "$size" = 0 ]
}

# quietly COMMAND...: checks that the kernel logs nothing about the unit during a command.
quietly() {
  local before
  before=$(dmesg | wc -l)
  "$@"
  dmesg | tail -n +"$((before + 1))" >said
  cat said
  refute grep -qiE 'timed out|timeout|reset|abort|error|offline' said
}

# answers_sg PORT UNIT IMAGE: checks the vendor code's answers to commands of sg3-utils.
answers_sg() {
  local node image=$images/$3.bin status=0
  node=$(sg_of "$1")
  sg_inq "$node" >inquiry
  grep -q 'Vendor identification: ASMedia' inquiry
  # It answers "not ready", and at once.
  sg_turs "$node" || status=$?
  [ "$status" = 2 ]
  sg_requests "$node"
  sg_luns "$node" >luns
  grep -q 'Lun list length = 8' luns
  sg_raw -r 128 -o block "$node" e0 50 00 00 00 00
  [ "$(sum block)" = "$(host sum "$2" flash.bin 0 128)" ]
  sg_raw -r 65280 -o part "$node" e2 50 00 00 ff 00
  cmp part <(head -c 65280 "$image")
  sg_raw -r 6 -o version "$node" e4 06 50 07 f0 00
  [ "$(od -A n -t x1 version)" = ' 24 04 17 85 00 00' ]
  status=0
  sg_raw -r 6 "$node" e4 06 4f 00 00 00 2>refused || status=$?
  [ "$status" != 0 ]
  grep -qi 'illegal request' refused
}

# Marks the unused XDATA from 0x6000 to 0x6FFF around a packet's end and at its own end, and reads it with one E4.
answers_a_long_e4() {
  local node
  node=$(sg_of "$1")
  sg_raw "$node" e5 5a 50 63 ff 00
  sg_raw "$node" e5 a5 50 64 00 00
  sg_raw "$node" e5 c3 50 6f ff 00
  sg_raw -r 4096 -o long "$node" e4 00 50 60 00 10
  [ "$(stat -c %s long)" = 4096 ]
  [ "$(od -A n -t x1 -j 1023 -N 2 long)" = ' 5a a5' ]
  [ "$(od -A n -t x1 -j 4094 long)" = ' 00 c3' ]
}

sg_utilities_are_answered_by_each_image_over_uas() {
  local image
  for image in stock patched extended; do
    chip_unit whole "$image"
    quietly plug_chip 0 whole uas
    quietly answers_sg 0 whole "$image"
    if [ "$image" = extended ]; then quietly answers_a_long_e4 0; fi
    unplug 0
  done
}

sg_utilities_are_answered_by_each_image_over_bulk_only() {
  local image
  for image in stock patched extended; do
    chip_unit whole "$image"
    quietly plug_chip n whole usb-storage
    quietly answers_sg n whole "$image"
    if [ "$image" = extended ]; then quietly answers_a_long_e4 n; fi
    unplug n
  done
}

lsusb_finds_no_fault_in_the_vendors_descriptors() {
  chip_unit whole patched
  plug_chip 0 whole uas
  lsusb -v -d 174c: >descriptors 2>faults
  cat descriptors faults
  [ ! -s faults ]
  # lsusb has no names for two USB Power Delivery capabilities in the firmware's BOS.
  grep -vE 'UNRECOGNIZED:  (12 10 06|18 10 08) ' descriptors >recognised
  refute grep -iE 'invalid|warning|unrecognized|\*\*' recognised
  grep -q 'bInterfaceProtocol     98' descriptors
  grep -q 'SuperSpeed USB Device Capability' descriptors
  unplug 0
}

asmpatch_lists_backs_up_and_benches_each_image_over_both_transports() {
  local image transport paths
  for image in stock patched extended; do
    chip_unit whole "$image"
    plug_chip 0 whole uas
    "$asmpatch" list --probe --json >list.json
    cat list.json
    grep -q '"version": "24' list.json
    until_true 10 is_bound 0 uas
    rm -rf copy
    "$asmpatch" backup --device "$(port_path 0)" -o copy
    [ "$(sum copy/part-1.bin)" = "$(host sum whole flash.bin 256 65280)" ]
    [ "$(sum copy/part-2.bin)" = "$(host sum whole flash.bin 65536 65536)" ]
    until_true 10 is_bound 0 uas
    paths=e4-255
    if [ "$image" = extended ]; then paths=e4-255,e4-4096; fi
    for transport in bot uas; do
      "$asmpatch" bench --device "$(port_path 0)" --transport "$transport" --path "$paths" --seconds 0.1 --repetitions 1 --json >bench.json
      cat bench.json
      [ "$(grep -c '"outcome": "measured"' bench.json)" = "$(tr , '\n' <<<"$paths" | wc -l)" ]
      until_true 10 is_bound 0 uas
    done
    unplug 0
  done
}

at_high_speed_the_firmware_answers_over_uas_and_over_bulk_only() {
  local slow transport
  chip_unit slow extended 'speed = "high"'
  slow=$(high_speed_port_of 1)
  locate() { port=$slow device=/sys/bus/usb/devices/$slow; }
  plug_chip 1 slow uas
  answers_sg 1 slow extended
  answers_a_long_e4 1
  for transport in bot uas; do
    "$asmpatch" bench --device "$slow" --transport "$transport" --path e4-255,e4-4096 --seconds 0.1 --repetitions 1 --json >bench.json
    cat bench.json
    [ "$(grep -c '"outcome": "measured"' bench.json)" = 2 ]
    until_true 10 is_bound 1 uas
  done
  unplug 1
  printf 174c:2464:u >"$quirks"
  plug_chip 1 slow usb-storage
  echo >"$quirks"
  answers_sg 1 slow extended
  answers_a_long_e4 1
  unplug 1
}
# The parameter that makes usb-storage and uas leave units alone.
quirks=/sys/module/usb_storage/parameters/quirks

# The firmware's own E1, E3 and E8 flash the unit; at the end it holds what it held at the beginning.
the_firmware_flashes_itself_to_the_patched_image_and_back() {
  chip_unit self stock '[timing]
reenumerate-ms = 600'
  plug_chip 3 self uas
  rm -rf copy
  "$asmpatch" backup --device "$(port_path 3)" -o copy
  until_true 10 is_bound 3 uas
  "$asmpatch" flash "$images/patched.bin" --device "$(port_path 3)" --yes --unproven
  until_true 20 has_id 3 add1:0001
  in_flash self "$images/patched.bin"
  until_true 20 is_bound 3 uas
  "$asmpatch" restore copy --device "$(port_path 3)" --yes --unproven
  until_true 20 has_id 3 174c:2464
  in_flash self "$images/stock.bin"
  [ "$(sum copy/config-0.bin)" = "$(host sum self flash.bin 0 128)" ]
  [ "$(sum copy/config-1.bin)" = "$(host sum self flash.bin 128 128)" ]
  until_true 20 is_bound 3 uas
}

# in_flash UNIT FILE: checks that the unit's flash holds both parts of the image, byte for byte.
in_flash() {
  [ "$(sum <(head -c 65280 "$2"))" = "$(host sum "$1" flash.bin 256 65280)" ]
  [ "$(sum <(tail -c +65281 "$2"))" = "$(host sum "$1" flash.bin 65536 $(($(stat -c %s "$2") - 65280)))" ]
}

reset_and_replugging_start_the_firmware_again() {
  "$asmpatch" reset --device "$(port_path 3)"
  until_true 20 is_bound 3 uas
  until_true 20 has_no_medium 3
  unplug 3
  plug_chip 3 self uas
  answers_sg 3 self stock
  replug 3 self
  until_true 20 has_no_medium 3
  unplug 3
}

# After a GPU runtime's initialisation READ CAPACITY answers as if there were a medium, but nothing answers for its
# blocks. If the kernel got such a unit back, it would wait 30 s and reset the port. A restart undoes the
# initialisation.
reset_gives_a_unit_that_a_gpu_runtime_has_initialised_back_to_the_kernel() {
  local node write
  chip_unit gpu patched '[timing]
reenumerate-ms = 600'
  plug_chip 4 gpu uas
  node=$(sg_of 4)
  for write in '20 054b' '04 054e' '02 05a8' '04 05f8' '01 07ec' '00 07ed' '00 07ee' '00 07ef' '02 c422' '33 0000'; do
    read -r -a write <<<"$write"
    sg_raw "$node" e5 "${write[0]}" 50 "${write[1]:0:2}" "${write[1]:2}" 00
  done
  sg_turs "$node"
  # Like a runtime that ended without giving the unit back.
  printf '%s:1.0' "$(port_path 4)" >/sys/bus/usb/drivers/uas/unbind
  "$asmpatch" list >listed
  cat listed
  grep -q "asmpatch reset --device $(port_path 4)" listed
  quietly "$asmpatch" reset --device "$(port_path 4)"
  until_true 20 is_bound 4 uas
  until_true 20 has_no_medium 4
  sg_raw -r 1 -o mark "$(sg_of 4)" e4 01 50 05 4b 00
  [ "$(od -A n -t x1 mark)" = ' 00' ]
  unplug 4
}

# The quirk of docs/recovery.md.
a_quirk_keeps_the_kernels_drivers_off_a_unit() {
  chip_unit free stock
  printf 174c:2464:ui >"$quirks"
  plug 5 free
  until_true 20 test -e "$(device_of 5)/product"
  until_true 10 test -e "$(device_of 5)/$(port_path 5):1.0"
  sleep 1
  echo >"$quirks"
  refute test -e "$(device_of 5)/$(port_path 5):1.0/driver"
  "$asmpatch" list --json >list.json
  cat list.json
  grep -q '"version": "24' list.json
  unplug 5
}

# Uses only endpoint 0: no driver binds class FF.
the_open_firmware_answers_lsusb_and_control_requests() {
  local port speed
  for speed in super high; do
    chip_unit open open "speed = \"$speed\""
    if [ "$speed" = super ]; then port=$(port_path 2); else port=$(high_speed_port_of 2); fi
    plug 2 open
    until_true 20 test -e "/sys/bus/usb/devices/$port/product"
    [ "$(cat "/sys/bus/usb/devices/$port/product")" = 'custom v0.1' ]
    if [ "$speed" = super ]; then
      lsusb -v -d add1:0001 >descriptors 2>faults
      cat descriptors faults
      grep -q 'bInterfaceClass       255' descriptors
      # It never answers a read that it doesn't know, such as GET_STATUS. The host gives up, and the unit goes on.
      refute grep -v 'cannot read device status' faults
    fi
    "$examples/control" "$port" write e5 f000 00ab
    [ "$("$examples/control" "$port" read e4 f000 0 4)" = 'ab 00 00 00' ]
    [ "$("$examples/control" "$port" read e4 cc00 0 64 | wc -w)" = 64 ]
    host unplug 2
    until_true 20 refute test -e "/sys/bus/usb/devices/$port"
  done
}

# Uses the unpatched image: with the status patch, the firmware answers a write before it is done.
the_firmware_moves_every_byte_of_an_ssd_through_uas() {
  local node
  chip_unit drive stock "$ssd"
  plug 0 drive
  until_true 20 is_bound 0 uas
  until_true 20 has_disk 0
  node=$(sg_of 0)
  sg_readcap "$node" | grep -q "Device size: $ssd_len bytes"
  sg_readcap --16 "$node" | grep -q "Device size: $ssd_len bytes"
  sg_turs "$node"
  sg_inq --page=0x80 "$node"
  quietly write_and_read_the_disk 0 drive
}

# sees_an_ssd PORT: every command sees the disk, whichever asked before, and none goes to PCIe or XDATA.
sees_an_ssd() {
  local command status
  for command in 'doctor' 'list --probe --json' 'doctor' 'pcie' 'xdata write --yes 0x5ff0 00' 'bench' 'list --probe --json'; do
    # shellcheck disable=SC2086
    "$asmpatch" $command --device "$1" >said 2>&1 && status=0 || status=$?
    cat said
    case $command in
      list*) [ "$status" = 0 ] && grep -q '"behind": "SSD asmpatch virtual drive' said ;;
      doctor) [ "$status" = 1 ] && grep -q 'an SSD' said && refute grep -q 'a GPU runtime has initialised' said ;;
      *) [ "$status" = 5 ] && grep -q 'an SSD is behind' said ;;
    esac
  done
}

# Without a driver nobody has read a block before asmpatch, and its own INQUIRY is the first command.
an_ssd_is_seen_with_the_kernels_driver_and_without_one() {
  chip_unit unread stock "$ssd"
  printf 174c:2464:ui >"$quirks"
  plug 6 unread
  until_true 20 test -e "$(device_of 6)/$(port_path 6):1.0"
  sleep 1
  refute test -e "$(device_of 6)/$(port_path 6):1.0/driver"
  sees_an_ssd "$(port_path 6)"
  unplug 6
  echo >"$quirks"
  chip_unit read stock "$ssd"
  plug 0 read
  until_true 20 is_bound 0 uas
  until_true 20 has_disk 0
  sees_an_ssd "$(port_path 0)"
  until_true 20 has_disk 0
  unplug 0
}

# Random writes with several in flight. Each block carries its own checksum.
an_ext4_on_an_ssd_holds_what_fio_writes_and_survives_replugging() {
  local disk
  disk=$(disk_of 0)
  quietly mke2fs -q -F -t ext4 "$disk"
  mkdir -p files
  mount -t ext4 "$disk" files
  quietly fio --name=verified --directory=files --size=3M --rw=randwrite --bsrange=4k-64k --ioengine=libaio --iodepth=8 --direct=1 \
    --verify=crc32c --verify_fatal=1 --fsync=16
  cp /usr/bin/fio files/large
  umount files
  quietly e2fsck -f -n "$disk"
  dd if="$disk" of=before bs=1M iflag=direct
  unplug 0
  plug 0 drive
  until_true 20 has_disk 0
  disk=$(disk_of 0)
  dd if="$disk" of=after bs=1M iflag=direct
  cmp before after
  mount -t ext4 -o ro "$disk" files
  cmp /usr/bin/fio files/large
  umount files
  unplug 0
}

the_firmware_moves_every_byte_of_an_ssd_through_usb_storage() {
  chip_unit drive2 stock "$ssd"
  plug n drive2
  until_true 20 is_bound n usb-storage
  until_true 20 has_disk n
  quietly write_and_read_the_disk n drive2
  unplug n
}

chip_cases=()
if [ -e "$images/stock.bin" ]; then
  chip_cases+=(
    sg_utilities_are_answered_by_each_image_over_uas
    sg_utilities_are_answered_by_each_image_over_bulk_only
    lsusb_finds_no_fault_in_the_vendors_descriptors
    asmpatch_lists_backs_up_and_benches_each_image_over_both_transports
    at_high_speed_the_firmware_answers_over_uas_and_over_bulk_only
    the_firmware_flashes_itself_to_the_patched_image_and_back
    reset_and_replugging_start_the_firmware_again
    reset_gives_a_unit_that_a_gpu_runtime_has_initialised_back_to_the_kernel
    a_quirk_keeps_the_kernels_drivers_off_a_unit
    the_firmware_moves_every_byte_of_an_ssd_through_uas
    an_ext4_on_an_ssd_holds_what_fio_writes_and_survives_replugging
    the_firmware_moves_every_byte_of_an_ssd_through_usb_storage
    an_ssd_is_seen_with_the_kernels_driver_and_without_one
  )
fi
if [ -e "$images/open.bin" ]; then chip_cases+=(the_open_firmware_answers_lsusb_and_control_requests); fi
