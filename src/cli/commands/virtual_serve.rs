//! The `asmpatch virtual serve` command: serves virtual units over usbredir.

use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use crate::unit;
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::VirtualUnit;
use asm2464_dock::virtual_unit::usbredir::{Address, GuestEvent, Listener, ServerEvent, serve};
use asm2464_host::bridge::Location;
use owo_colors::OwoColorize;

use crate::cli::given::context::Context;
use crate::cli::words::errors::{self, Exit};
use crate::cli::words::interrupt;

/// Serve a virtual unit as a USB device, to a virtual machine.
///
/// The unit is served over usbredir: QEMU's `usb-redir` device connects to the socket, and the guest's own USB stack
/// enumerates a SuperSpeed device with Bulk-Only, UAS and bulk streams. It is the same virtual unit as
/// `--device virtual:DIR` in the other commands, and lives in the same folder; the bridge.toml there says what is
/// behind it and what goes wrong.
///
/// qemu-system-x86_64 ... -device qemu-xhci -chardev socket,id=bridge,path=PATH -device usb-redir,chardev=bridge
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch virtual serve --listen unix:/tmp/bridge.sock --device virtual:u")]
pub struct ServeArgs {
    /// Where to listen, as unix:PATH. Several, each with its own --device, serve several units.
    #[arg(long, value_name = "SOCKET", required = true)]
    listen: Vec<Address>,

    /// The unit's folder, created if missing.
    #[arg(long, value_name = "virtual:DIR", required = true, value_parser = unit_folder)]
    device: Vec<Box<Path>>,

    /// End when the first guest has left.
    #[arg(long)]
    once: bool,
}

/// Parses a `virtual:DIR` argument. No `PathBuf`, because shells would complete it without the prefix.
pub fn unit_folder(text: &str) -> Result<Box<Path>, &'static str> {
    match text.parse() {
        Ok(Location::Virtual(dir)) if !dir.as_os_str().is_empty() => {
            Ok(unit::virtual_folder(Some(dir)).map_err(|_| "the system names no home folder")?.into())
        }
        _ => Err("expected `virtual:DIR`; only virtual units are served"),
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if a unit can't be opened, or if a socket can't be listened on. A failure with one guest is reported, and the
/// server waits for the next guest.
pub fn run(args: &ServeArgs, context: &Context) -> Result<Exit, AnyFailure> {
    if args.listen.len() != args.device.len() {
        let (sockets, units) = (args.listen.len(), args.device.len());
        let message = format!("{sockets} --listen and {units} --device: each unit needs a socket of its own");
        return Err(Failure::new(Kind::Usage.code("asmpatch::serve::pairs"), message).into());
    }
    let interrupt = interrupt::install();
    let practice_image = practice::image().to_file();
    let mut served = Vec::new();
    for (address, dir) in args.listen.iter().zip(&args.device) {
        let unit = VirtualUnit::open(dir, Some(&practice_image))?;
        served.push((unit, Listener::bind(address)?));
        if !context.is_quiet {
            errln!("{}: the unit in {} waits for a guest", address.bold(), dir.shown());
        }
    }
    // Each unit has its own thread, so that one that erases its flash does not delay the others. All threads wait until
    // the last has started, and end if one can't be started.
    let have_all_started = &OnceLock::new();
    thread::scope(|scope| {
        let serving = served.iter_mut().map(|(unit, listener)| {
            let listener = &*listener;
            let work = move || {
                if !have_all_started.wait() {
                    return Ok(());
                }
                let report = &mut |event| print_event(context, listener.address(), event);
                serve(unit, listener, args.once, interrupt, report)
            };
            thread::Builder::new().spawn_scoped(scope, work).map_err(|error| {
                let label = Kind::System.code("asmpatch::serve::thread");
                let what = format!("the system starts no thread for the unit on {}", listener.address());
                Failure::new(label, what).because(error)
            })
        });
        let serving: Result<Vec<_>, _> = serving.collect();
        let _ = have_all_started.set(serving.is_ok());
        serving?.into_iter().try_for_each(|unit| match unit.join() {
            Ok(ended) => ended.map_err(AnyFailure::from),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    interrupt.check()?;
    Ok(Exit::Done)
}

fn print_event(context: &Context, address: &Address, event: ServerEvent) {
    let text = match event {
        ServerEvent::GivenUp(error) => {
            errln!("{}: the connection was given up", address.bold());
            errors::report(&error, &context.invocation);
            return;
        }
        _ if context.is_quiet => return,
        ServerEvent::Connected => "a guest has connected".to_owned(),
        ServerEvent::Left => "the guest has left".to_owned(),
        ServerEvent::Unit(GuestEvent::Plugged { id, state }) => format!("plugged in as {id} ({state})"),
        ServerEvent::Unit(GuestEvent::Unplugged) => "unplugged".to_owned(),
        ServerEvent::Unit(GuestEvent::Alternate(alternate)) => {
            format!("alternate {alternate}: {}", if alternate == 0 { "Bulk-Only" } else { "UAS" })
        }
        ServerEvent::Unit(GuestEvent::PortReset) => "port reset".to_owned(),
        ServerEvent::Unit(GuestEvent::Refused) => "the guest's filter refuses the device".to_owned(),
    };
    errln!("{}: {text}", address.bold());
}
