//! Layer of the options (pure).

use super::layers::{Layer, Rank};
use super::origin::Origin;
use super::setting::{EmbeddedStore, Setting, Value};
use crate::cli::options::{ConnectionArgs, DisplayArgs};
use crate::commands::CommandError;

/// Returns the layer of the options on the command line.
///
/// # Errors
/// The broker's URL is invalid.
pub fn layer(connection: &ConnectionArgs, display: &DisplayArgs) -> Result<Layer, CommandError> {
    let ConnectionArgs {
        broker,
        hostname,
        port,
        notls,
        cafile,
        certfile,
        keyfile,
        keypasswordfile,
        server_name,
        insecure,
        username,
        password_file,
        ask_password,
        sat_file,
        embedded,
        client_id,
        timeout,
        connect_timeout,
        retries,
        keep_alive,
        cautious,
        context: _,
        no_context: _,
        config: _,
        trace: _,
    } = connection;
    let DisplayArgs { output, json, quiet, verbose, color, utc } = display;
    let mut layer = Layer::new(Rank::Flags);
    let mut put = |setting: Setting, value: Option<Value>| {
        if let Some(value) = value {
            layer.put(setting, value, Origin::Flag);
        }
    };
    let is_on = |typed: &bool| typed.then_some(Value::Switch(true));
    let embedded_store = |folder: &Option<_>| match folder {
        Some(folder) => EmbeddedStore::Folder(std::path::PathBuf::clone(folder)),
        None => EmbeddedStore::Memory,
    };
    put(Setting::Broker, broker.as_deref().map(Value::url).transpose()?);
    put(Setting::Hostname, hostname.clone().map(Value::Text));
    put(Setting::Port, port.map(|port| Value::Number(port.into())));
    put(Setting::Notls, is_on(notls));
    put(Setting::Embedded, embedded.as_ref().map(|folder| Value::Store(embedded_store(folder))));
    put(Setting::Cafile, cafile.clone().map(Value::Path));
    put(Setting::Certfile, certfile.clone().map(Value::Path));
    put(Setting::Keyfile, keyfile.clone().map(Value::Path));
    put(Setting::Keypasswordfile, keypasswordfile.clone().map(Value::Path));
    put(Setting::ServerName, server_name.clone().map(Value::Text));
    put(Setting::Insecure, is_on(insecure));
    put(Setting::Username, username.clone().map(Value::Text));
    put(Setting::PasswordFile, password_file.clone().map(Value::Path));
    put(Setting::AskPassword, is_on(ask_password));
    put(Setting::SatFile, sat_file.clone().map(Value::Path));
    put(Setting::ClientId, client_id.clone().map(Value::Text));
    put(Setting::Timeout, timeout.map(Value::Wait));
    put(Setting::ConnectTimeout, connect_timeout.map(Value::Wait));
    put(Setting::Retries, retries.map(Value::Number));
    put(Setting::KeepAlive, keep_alive.map(Value::Wait));
    put(Setting::Cautious, is_on(cautious));
    put(Setting::Output, output.map(Value::Format));
    put(Setting::Json, is_on(json));
    put(Setting::Quiet, is_on(quiet));
    put(Setting::Verbose, is_on(verbose));
    put(Setting::Color, color.map(Value::When));
    put(Setting::Utc, is_on(utc));
    Ok(layer)
}
