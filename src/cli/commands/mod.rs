//! The subcommands, a file or a folder each: what each takes, does, shows and prints. None of them is imported from below.

pub mod backup;
pub mod bench;
pub mod completions;
pub mod config;
pub mod demo;
pub mod disasm;
pub mod doctor;
pub mod download;
pub mod flash;
pub mod help;
pub mod info;
pub mod list;
pub mod make_patch;
pub mod man;
pub mod patch;
pub mod pcie;
pub mod reset;
pub mod restore;
pub mod run;
pub mod udev;
pub mod unpatch;
pub mod verify;
#[cfg(unix)]
pub mod virtual_serve;
pub mod virtual_unit;
pub mod wrap;
pub mod xdata;

use asm2464::AnyFailure;
use clap::Subcommand;

use crate::cli::given::context::Context;
use crate::cli::words::command_tree;
use crate::cli::words::errors::Exit;

/// The subcommands, in the order in which you use them.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    Download(download::Args),
    Info(info::Args),
    Patch(patch::Args),
    Unpatch(unpatch::Args),
    Verify(verify::Args),
    List(list::Args),
    Backup(backup::Args),
    Flash(flash::Args),
    Restore(restore::Args),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Doctor(doctor::Args),
    Reset(reset::Args),
    Pcie(pcie::Args),
    #[command(subcommand)]
    Xdata(xdata::XdataCommand),
    Bench(bench::Args),
    Wrap(wrap::Args),
    MakePatch(make_patch::Args),
    Run(run::Args),
    Disasm(disasm::Args),
    #[command(subcommand)]
    Virtual(virtual_unit::VirtualCommand),
    Demo(demo::Args),
    Udev(udev::Args),
    Man(man::Args),
    Completions(completions::Args),
    Help(help::Args),
}

/// Runs a command. Returns how it ended, and whether its output is all that it is for: the other commands change a unit or
/// write files, and have done so whether or not anybody reads what they say.
pub fn dispatch(command: CliCommand, context: &Context) -> (Result<Exit, AnyFailure>, bool) {
    match command {
        CliCommand::Download(args) => (download::run(&args, context), false),
        CliCommand::Info(args) => (info::run(&args, context), true),
        CliCommand::Patch(args) => (patch::run(&args, context), false),
        CliCommand::Unpatch(args) => (unpatch::run(&args, context), false),
        CliCommand::Verify(args) => (verify::run(&args, context), true),
        CliCommand::List(args) => (list::run(&args, context), true),
        CliCommand::Backup(args) => (backup::run(&args, context), false),
        CliCommand::Flash(args) => (flash::run(&args, context), false),
        CliCommand::Restore(args) => (restore::run(&args, context), false),
        CliCommand::Config(command) => (config::run(&command, context), command.only_prints()),
        CliCommand::Doctor(args) => (doctor::run(&args, context), true),
        CliCommand::Reset(args) => (reset::run(&args, context), false),
        CliCommand::Pcie(args) => (pcie::run(&args, context), args.only_prints()),
        CliCommand::Xdata(command) => (xdata::run(&command), command.only_prints()),
        CliCommand::Bench(args) => (bench::run(&args, context), true),
        CliCommand::Wrap(args) => (wrap::run(&args, context), false),
        CliCommand::MakePatch(args) => (make_patch::run(&args), false),
        CliCommand::Run(args) => (run::run(&args, context), true),
        CliCommand::Disasm(args) => (disasm::run(&args, context), true),
        CliCommand::Virtual(command) => (virtual_unit::run(&command, context), false),
        CliCommand::Demo(args) => (demo::run(&args, context), false),
        CliCommand::Udev(args) => (udev::run(&args), true),
        CliCommand::Man(args) => (man::run(&args, command_tree::tree_for_pages()), true),
        CliCommand::Completions(args) => (completions::run(&args), true),
        CliCommand::Help(args) => (help::run(&args, context), true),
    }
}
