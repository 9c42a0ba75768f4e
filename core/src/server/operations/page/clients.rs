//! The list of clients.

use std::time::Duration;

use super::query::{CLIENTS, Query};
use super::selection::{Rank, Selection};
use super::table::{Column, List, selected};
use super::text;
use crate::broker::{ClientStatistics, Statistics};
use crate::clock;
use crate::server::operations::monitor::ServerMonitor;

/// The most bytes of a client id or an identity that are shown.
const SHOWN_BYTES_MAX: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientColumn {
    ClientId,
    Address,
    Identity,
    Since,
    Subscriptions,
    Watches,
    Messages,
    Bytes,
}

const COLUMNS: &[Column<ClientColumn>] = &[
    Column { name: "id", title: "Client id", column: ClientColumn::ClientId, is_number: false },
    Column { name: "address", title: "Address", column: ClientColumn::Address, is_number: false },
    Column { name: "identity", title: "Identity", column: ClientColumn::Identity, is_number: false },
    Column { name: "since", title: "Connected for", column: ClientColumn::Since, is_number: true },
    Column {
        name: "subscriptions",
        title: "Subscriptions",
        column: ClientColumn::Subscriptions,
        is_number: true,
    },
    Column { name: "", title: "Watches", column: ClientColumn::Watches, is_number: true },
    Column { name: "queue", title: "Queue", column: ClientColumn::Messages, is_number: true },
    Column { name: "bytes", title: "Queue size", column: ClientColumn::Bytes, is_number: true },
];

/// Returns the list, and how much the broker holds.
pub async fn html(monitor: &ServerMonitor, query: &Query) -> (String, Statistics) {
    let list = List::new(query, (CLIENTS, "clients"), COLUMNS, ClientColumn::ClientId);
    let order = list.order;
    let filter = query.get(CLIENTS.filter);
    let now = clock::now();
    let mut selection = Selection::new(selected(list.skip()), order.is_descending);
    let visit = |client: ClientStatistics| {
        let identity = client.principal.describe();
        let identity = identity.as_deref();
        if matches(&client, identity, filter) {
            let age = client.since.map(|since| now.monotonic.saturating_duration_since(since));
            // Offered with a copy, because the rank borrows it; most clients are not taken.
            selection.offer(rank(order.column, &client, identity, age), || client.clone());
        }
    };
    let statistics = monitor.broker.each_client(visit).await;
    let all = selection.offered();
    let clients = selection.into_rows(list.skip());
    let connections: Vec<_> = clients.iter().map(|client| client.connection).collect();
    let watches = monitor.service.watches_of(&connections);
    let mut html = list.form("Filter clients", "client id, address or identity");
    html.push_str("<div id=\"clients-list\" data-live>\n");
    html.push_str(&list.head("Clients"));
    for (client, watches) in clients.iter().zip(watches) {
        html.push_str(&row(client, watches, now));
    }
    html.push_str(&list.foot(clients.len(), all, None));
    html.push_str("</div>\n");
    (html, statistics)
}

fn matches(client: &ClientStatistics, identity: Option<&str>, filter: &str) -> bool {
    [&*client.client_id, &*client.remote, identity.unwrap_or_default()]
        .iter()
        .any(|text| text.contains(filter))
}

fn rank<'a>(
    column: ClientColumn,
    client: &'a ClientStatistics,
    identity: Option<&'a str>,
    age: Option<Duration>,
) -> Option<Rank<&'a [u8]>> {
    let text = |text: &'a str| Some(Rank::Text(text.as_bytes()));
    let number = |number: usize| Some(Rank::Number(number as u64));
    match column {
        ClientColumn::ClientId => text(&client.client_id),
        ClientColumn::Address => text(&client.remote),
        ClientColumn::Identity => identity.and_then(text),
        ClientColumn::Since => {
            let age = age.filter(|_| client.is_connected())?;
            Some(Rank::Number(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
        }
        ClientColumn::Subscriptions => number(client.subscriptions),
        ClientColumn::Messages => number(client.queued),
        ClientColumn::Bytes => number(client.queued_bytes),
        ClientColumn::Watches => None,
    }
}

fn row(client: &ClientStatistics, watches: usize, now: clock::Reading) -> String {
    let number = |number: usize| text::count(number as u64);
    let shown = |bytes: &str| text::shortened(bytes.as_bytes(), bytes.len(), SHOWN_BYTES_MAX);
    let age = client.since.map_or(Duration::ZERO, |since| now.monotonic.saturating_duration_since(since));
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let time = text::time(now.wall_ms.saturating_sub(age_ms), &text::duration(age));
    let (class, since) = match client.is_connected() {
        true => ("", time),
        false => (" class=\"away\"", format!("disconnected for {time}")),
    };
    let identity = client
        .principal
        .describe()
        .map_or_else(|| "<span class=\"dim\">anonymous</span>".to_owned(), |identity| shown(&identity));
    format!(
        "<tr{class}><th scope=\"row\"><code>{}</code></th><td><code>{}</code></td><td>{identity}</td>\
         <td class=\"n\">{since}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td></tr>\n",
        shown(&client.client_id),
        shown(&client.remote),
        number(client.subscriptions),
        number(watches),
        number(client.queued),
        text::bytes(client.queued_bytes as u64),
    )
}
