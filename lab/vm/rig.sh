# The test rig: a Debian kernel under QEMU, with usb-redir ports that lead to virtual units on the host.
#
# Sourced by `run` and `measure`, which choose the guest's script. The guest sees the host's root read-only (9p), so the
# programs under test are the host's own files. What it writes to /tmp stays in the guest. For what only the host can do
# (plug a unit in, unplug it, read its flash file), the guest sends a line on its second serial port: see `host_*` below
# and `host` in guest.sh.

# shellcheck shell=bash
vm=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$vm/../.." && pwd)
cache=$vm/cache
ports=8
# Seconds without a line from the guest after which the rig checks whether QEMU still runs.
patience=5
# Controllers with one port each, from o0 on. Only measurements of many units at once need some.
own_controllers=0
packages=(qemu-system-x86 seabios busybox-static cpio usbutils sg3-utils e2fsprogs fio python3 libusb-1.0-0 sdcc)
# Releases of a GPU runtime whose USB code drives units in the guest, with the SHA-256 of their wheels.
declare -A runtimes=(
  [0.13.0]=1aad37a742ac5f0bd26d811b9b799fbb08088eaa2e7279ff53b19b8c934a9f1c
  [0.14.0]=d2a5bea33c637fdf105963632329876b3d3253d38295ac1ffd2ff81646d93be3
)
programs=(qemu-system-x86_64 busybox cpio sg_inq lsusb mke2fs fio dpkg sdcc)

# In load order. The kernel of linux-image-amd64 has each of these as a module.
base_modules='netfs fscache 9pnet virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci 9pnet_virtio 9p overlay'
usb_modules='usb-common usbcore xhci-hcd xhci-pci scsi_common scsi_mod crct10dif_common crc-t10dif crc64 crc64-rocksoft
  t10-pi sg sd_mod minix crc16 crc32c_generic mbcache jbd2 ext4 usb-storage uas'

say() { printf '%s\n' "$*"; }
die() { printf 'lab/vm: %s\n' "$*" >&2; exit 1; }

install_packages() {
  local missing=() package
  python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  [ "$(id -u)" = 0 ] || die "install these first: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The wheels are unpacked, not installed, and compiled here, because the guest can't write to their folder.
fetch_runtimes() {
  local version folder
  for version in "${!runtimes[@]}"; do
    folder=$cache/tinygrad-$version
    [ ! -f "$folder/.complete" ] || continue
    rm -rf "$folder" "$folder.partial"
    mkdir -p "$folder.partial"
    (
      cd "$folder.partial"
      say "tinygrad==$version --hash=sha256:${runtimes[$version]}" >requirements
      python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes -r requirements
      python3 -m zipfile -e ./*.whl .
      rm ./*.whl requirements
      /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash .
      touch .complete
    ) || die "cannot fetch tinygrad $version"
    mv "$folder.partial" "$folder"
  done
}

need_programs() {
  local program
  for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || die "$program is not here; \`$0 --install\` (as root) installs what the rig needs"
  done
}

# The kernel package is unpacked, not installed.
prepare_kernel() {
  local package deb
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/ *Depends: //p' | grep -v cloud | head -n 1)
  [ -n "$package" ] || package=$(cd "$cache" 2>/dev/null && find . -maxdepth 1 -name 'linux-image-*' -type d -printf '%f\n' | head -n 1)
  [ -n "$package" ] || die 'apt knows no linux-image-amd64, and no kernel is cached'
  kernel=$cache/$package
  [ -f "$kernel/.complete" ] && return
  mkdir -p "$cache"
  rm -rf "$kernel" "$kernel.partial"
  mkdir "$kernel.partial"
  (cd "$kernel.partial" && apt-get download -qq "$package") || {
    [ "$(id -u)" = 0 ] && apt-get update -qq && (cd "$kernel.partial" && apt-get download -qq "$package")
  } || die "cannot download $package"
  deb=$(find "$kernel.partial" -name '*.deb')
  dpkg -x "$deb" "$kernel.partial"
  rm "$deb"
  touch "$kernel.partial/.complete"
  mv "$kernel.partial" "$kernel"
}

prepare_initramfs() {
  local tree=$work/initramfs module found
  mkdir -p "$tree"/{bin,proc,sys,dev,host,modules}
  cp "$(command -v busybox)" "$tree/bin/busybox"
  ln -s busybox "$tree/bin/sh"
  for module in $base_modules $usb_modules; do
    found=$(find "$kernel/lib/modules" -name "$module.ko" -o -name "${module//-/_}.ko" -o -name "${module//_/-}.ko" | head -n 1)
    [ -n "$found" ] || die "the kernel has no module $module"
    cp "$found" "$tree/modules/$module.ko"
  done
  say "$base_modules" >"$tree/modules/base"
  say "$usb_modules" >"$tree/modules/usb"
  install -m 755 "$vm/init" "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initramfs.gz"
}

# Makes a work folder with the kernel and the initramfs.
begin() {
  need_programs
  work=$(mktemp -d "${TMPDIR:-/tmp}/asmpatch-vm.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  mkdir "$work/units"
  prepare_kernel
  prepare_initramfs
}

# Makes $work/images, the images for units on the chip model, from those that the variables name.
prepare_images() {
  images=$work/images
  mkdir "$images"
  if [ -n "${ASMPATCH_VENDOR_IMAGE:-}" ]; then
    cp "$ASMPATCH_VENDOR_IMAGE" "$images/stock.bin"
    "$asmpatch" patch "$images/stock.bin" -o "$images/patched.bin" >/dev/null
    "$asmpatch" patch "$images/stock.bin" --patch e4-length-16 -o "$images/extended.bin" >/dev/null
  fi
  if [ -n "${ASMPATCH_OPEN_IMAGE:-}" ]; then cp "$ASMPATCH_OPEN_IMAGE" "$images/open.bin"; fi
  if [ -n "${ASMPATCH_OPEN_NEW_IMAGE:-}" ]; then cp "$ASMPATCH_OPEN_NEW_IMAGE" "$images/newest.bin"; fi
  if [ -n "${ASMPATCH_OPEN_USB4_IMAGE:-}" ]; then cp "$ASMPATCH_OPEN_USB4_IMAGE" "$images/usb4.bin"; fi
  # Compiled as in docs/firmware-authors.md.
  (cd "$images" && sdcc -mmcs51 --debug --xram-loc 0x1000 --xram-size 0x1000 -Wl-bGSINIT0=0x0220 "$root/examples/firmware/sample.c")
}

# boot SCRIPT [NAME=VALUE...]: boots the guest, which runs SCRIPT after guest.sh, and serves it until it is done.
boot() {
  local script=$1 port controllers=() devices=() pair
  shift
  {
    printf 'controllers=%q\n' "$((2 + own_controllers))"
    for pair in "$@"; do printf '%s=%q\n' "${pair%%=*}" "${pair#*=}"; done
    printf 'vm=%q\n' "$vm"
    printf '. "$vm/guest.sh"\n. %q\n' "$script"
  } >"$work/guest-main.sh"
  for ((port = 0; port < ports; port++)); do
    devices+=(-chardev "socket,id=c$port,path=$work/port$port.sock,reconnect=1"
      -device "usb-redir,id=r$port,chardev=c$port,bus=xhci.0,port=$((port + 1))")
  done
  devices+=(-chardev "socket,id=cn,path=$work/portn.sock,reconnect=1"
    -device "usb-redir,id=rn,chardev=cn,bus=nostreams.0,port=1")
  # A hub that switches its port's power, which QEMU's root hubs don't, at a port of its own. See full-speed.
  devices+=(-device "usb-hub,id=hub,bus=xhci.0,port=$((ports + 1)),ports=1,port-power=on"
    -chardev "socket,id=ch,path=$work/porth.sock,reconnect=1"
    -device "usb-redir,id=rh,chardev=ch,bus=xhci.0,port=$((ports + 1)).1")
  for ((port = 0; port < own_controllers; port++)); do
    controllers+=(-device "qemu-xhci,id=own$port,p2=1,p3=1")
    devices+=(-chardev "socket,id=co$port,path=$work/porto$port.sock,reconnect=1"
      -device "usb-redir,id=ro$port,chardev=co$port,bus=own$port.0,port=1")
  done
  mkfifo "$work/talk.in" "$work/talk.out"
  # no_timer_check: on a busy host the kernel considers the timer broken, and panics. mitigations=off: they cost much
  # time under emulation.
  qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nographic -no-reboot -net none \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initramfs.gz" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off asmpatch.main=$work/guest-main.sh" \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    -device "qemu-xhci,id=xhci,p2=$((ports + 1)),p3=$ports" -device qemu-xhci,id=nostreams,streams=off,p2=1,p3=1 \
    "${controllers[@]}" "${devices[@]}" -serial "file:$work/console.log" -serial "pipe:$work/talk" -monitor none \
    </dev/null >"$work/qemu.log" 2>&1 &
  qemu=$!
  printf '%s' "$qemu" >"$work/qemu.pid"
  exec 8<>"$work/talk.out" 9<>"$work/talk.in"
  serve_guest || true
  # Nothing in the guest needs a clean shutdown.
  kill "$qemu" 2>/dev/null || true
  wait "$qemu" || true
  qemu=
}

# Reads requests until the guest is done or QEMU has ended.
serve_guest() {
  local line= part request reply status
  while true; do
    if ! IFS= read -r -t "$patience" part <&8; then
      # The time may be up in the middle of a line, which then goes on with the next read.
      line+=$part
      kill -0 "$qemu" 2>/dev/null || { say 'FAILED the guest ended before its script did; its last words:'; tail -n 20 "$work/console.log" "$work/qemu.log"; return 1; }
      continue
    fi
    line+=${part%$'\r'}
    read -r -a request <<<"$line"
    case ${request[0]:-} in
      '') ;;
      say) say "${line#say }" ;;
      done) return 0 ;;
      *)
        if reply=$("host_${request[0]}" "${request[@]:1}" 2>&1); then status=0; else status=$?; fi
        printf '%s %s\n' "$status" "$(printf '%s' "$reply" | base64 -w 0)" >&9
        ;;
    esac
    line=
  done
}

# --- what the guest may ask for -------------------------------------------------------------------------------------

# unit NAME: makes an empty folder for a virtual unit.
host_unit() {
  rm -rf "$work/units/$1"
  mkdir -p "$work/units/$1"
}

# file UNIT NAME BASE64: writes a file into a unit's folder.
host_file() { base64 -d <<<"$3" >"$work/units/$1/$2"; }

# image UNIT FILE SERIAL: gives a new unit its flash: a maker's configuration blocks, and this image.
host_image() {
  local folder=$work/units/$1
  printf 'factory = "no-image"\nserial = "%s"\n' "$3" >"$folder/bridge.toml"
  "$asmpatch" list --device "virtual:$folder" >/dev/null
  head -c 65280 "$2" | dd of="$folder/flash.bin" oflag=seek_bytes seek=256 conv=notrunc status=none
  tail -c +65281 "$2" | dd of="$folder/flash.bin" oflag=seek_bytes seek=65536 conv=notrunc status=none
}

# plug PORT UNIT [OPTION...]: starts a server for the unit at the port. QEMU connects within a second.
host_plug() {
  local port=$1 unit=$2 socket=$work/port$1.sock
  shift 2
  [ "$port" != h ] || socket=$work/unith.sock
  rm -f "$socket"
  serve "$port" "$work/units/$unit.server.log" \
    "$asmpatch" virtual serve --listen "unix:$socket" --device "virtual:$work/units/$unit" "$@"
  if [ "$port" = h ]; then connect_hub; fi
}

# plain PORT [COMMAND_US]: starts the plain responder at the port.
host_plain() {
  local port=$1
  shift
  serve "$port" "$work/plain.log" "$examples/responder" "unix:$work/port$port.sock" "$@"
}

# serve PORT LOG COMMAND...: starts a server for the port.
serve() {
  local port=$1 log=$2
  shift 2
  # A failed case may have left its unit there.
  [ ! -f "$work/port$port.pid" ] || host_unplug "$port"
  rm -f "$work/port$port.sock"
  "$@" </dev/null >"$log" 2>&1 9>&- 8>&- &
  printf '%s' $! >"$work/port$port.pid"
}

# power off|on: cuts the power of the unit at the hub's port, or gives it back, as its server does with each
# connection.
host_power() {
  if [ "$1" = off ]; then
    kill "$(cat "$work/porth.cable.pid")" 2>/dev/null || true
    rm "$work/porth.cable.pid"
  else
    connect_hub
  fi
}

# Connects the unit at the hub's port.
connect_hub() {
  rm -f "$work/porth.sock"
  "$vm/full-speed" "$work/porth.sock" "$work/unith.sock" </dev/null >"$work/full-speed.log" 2>&1 9>&- 8>&- &
  printf '%s' $! >"$work/porth.cable.pid"
}

# unplug PORT: ends the server as Ctrl-C does, and prints its exit status.
host_unplug() {
  local pid
  pid=$(cat "$work/port$1.pid")
  rm "$work/port$1.pid"
  kill -INT "$pid"
  tail --pid="$pid" -s 0.05 -f /dev/null
  [ "$1" != h ] || host_power off
}

# replug UNIT: cycles the power of a served unit.
host_replug() { "$asmpatch" virtual replug --device "virtual:$work/units/$1"; }

# alone UNIT PATH BYTES: prints the MB/s of a path in one process with the unit, without USB, QEMU and the kernel.
host_alone() {
  "$asmpatch" bench --device "virtual:$work/units/$1" --path tlp-write --path "$2" --size "$3" --depth 1 --repetitions 3 --json |
    python3 -c 'import json, sys; print(*(row["mb_per_s"]["median"] for row in json.load(sys.stdin)["rows"] if row["path"] == sys.argv[1]))' "$2"
}

# serverlog UNIT: prints the log of a unit's server.
host_serverlog() { cat "$work/units/$1.server.log"; }

# sum UNIT FILE OFFSET LENGTH: prints the SHA-256 of a part of a unit's file.
host_sum() {
  dd if="$work/units/$1/$2" bs=1M iflag=skip_bytes,count_bytes,fullblock skip="$3" count="$4" status=none | sha256sum | cut -d ' ' -f 1
}

clean_up() {
  local pidfile
  for pidfile in "$work"/port*.pid "$work"/qemu.pid; do
    if [ -f "$pidfile" ]; then kill "$(cat "$pidfile")" 2>/dev/null || true; fi
  done
  if [ -n "${keep:-}" ]; then say "kept: $work"; else rm -rf "$work"; fi
}
