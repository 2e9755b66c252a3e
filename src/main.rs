//! The `asmpatch` command.

fn main() -> std::process::ExitCode {
    asmpatch::cli::main()
}
