//! The process: hands itself to the command line.

fn main() -> std::process::ExitCode {
    mqkv::cli::main()
}
