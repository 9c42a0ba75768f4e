//! The `mqkv` binary: runs the command line of the library.

fn main() -> std::process::ExitCode {
    mqkv::cli::main()
}
