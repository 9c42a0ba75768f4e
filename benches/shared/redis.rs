//! A Redis server, and clients that count its replies. A payload of the state store, an array of bulk strings, is a
//! command of Redis too.

use std::io::{self, Read, Write};
use std::net;
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Process, Window, free_port, spawn, wait_until_open};

/// Starts Redis on loopback; with a folder, it appends each write to a file there and syncs it before it replies.
pub fn serve(folder: Option<&Path>) -> Process {
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder).unwrap();
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]).arg(folder);
    }
    let child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()), "redis-server");
    wait_until_open(port);
    Process::new(child, port)
}

/// Removes all complete replies from the input, and returns how many they are.
fn count_replies(input: &mut BytesMut) -> usize {
    let mut replies = 0;
    while let Some(end) = input.windows(2).position(|two| two == b"\r\n") {
        let line = std::str::from_utf8(&input[1..end]).unwrap();
        let length = match input[0] {
            b'$' if line != "-1" => end + 2 + line.parse::<usize>().unwrap() + 2,
            b'$' | b'+' | b':' => end + 2,
            _ => panic!("{line}"),
        };
        if input.len() < length {
            break;
        }
        input.advance(length);
        replies += 1;
    }
    replies
}

/// A client with blocking input and output.
pub struct BlockingClient {
    stream: net::TcpStream,
    input: BytesMut,
}

impl BlockingClient {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = net::TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: BytesMut::new() })
    }

    /// Sends a command and waits for its reply.
    pub fn request(&mut self, command: &[u8]) -> io::Result<()> {
        self.stream.write_all(command)?;
        while count_replies(&mut self.input) == 0 {
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.input.extend_from_slice(&bytes[..read]),
            }
        }
        Ok(())
    }
}

/// A client that shares its thread with many others.
pub struct Client {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
}

impl Client {
    pub async fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: BytesMut::new(), output: BytesMut::new() })
    }

    /// Sends `count` commands, with `inflight` at a time, and waits for the replies. `push` appends the command of this
    /// number.
    pub async fn request_each(
        &mut self,
        inflight: usize,
        count: usize,
        mut push: impl FnMut(&mut BytesMut, usize),
    ) -> io::Result<()> {
        let mut window = Window::new(inflight, count);
        while !window.is_done() {
            window.fill(|number| push(&mut self.output, number));
            self.stream.write_all_buf(&mut self.output).await?;
            self.input.reserve(16 * 1024);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            window.answered += count_replies(&mut self.input);
        }
        Ok(())
    }
}
