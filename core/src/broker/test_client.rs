//! Client for tests: sends and receives single packets over an in-memory connection.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use self::wire::{
    ConnAck, Connect, ConnectAuth, ConnectProperties, Disconnect, DisconnectReasonCode, LastWill, Packet,
    PubAck, PubAckReason, Publish, PublishProperties, QoS, SubAck, Subscribe, SubscribeFilter,
    SubscribeProperties,
};
use super::server::Server;

/// The types of the MQTT crate, for the packets of the test client.
pub mod wire {
    pub use rumqttc::mqttbytes::QoS;
    pub use rumqttc::mqttbytes::v5::*;
}

/// Long enough for a busy machine; only a failing test takes as long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The contents of a CONNECT.
pub struct ConnectOptions {
    pub client_id: &'static str,
    pub clean_start: bool,
    pub keep_alive: u16,
    pub will: Option<LastWill>,
    pub properties: ConnectProperties,
}

impl ConnectOptions {
    pub fn new(client_id: &'static str) -> Self {
        let properties = ConnectProperties::new();
        Self { client_id, clean_start: false, keep_alive: 0, will: None, properties }
    }

    /// Returns options with a session expiry interval of one hour.
    pub fn persistent(client_id: &'static str) -> Self {
        let mut options = Self::new(client_id);
        options.properties.session_expiry_interval = Some(3600);
        options
    }
}

pub struct Client {
    pub stream: DuplexStream,
    input: BytesMut,
}

impl Client {
    /// Opens a connection without sending a CONNECT.
    pub fn unconnected(server: &Server) -> Self {
        Self::on(server.pipe())
    }

    /// Returns the client at this end of a connection.
    pub fn on(stream: DuplexStream) -> Self {
        Self { stream, input: BytesMut::new() }
    }

    pub async fn connect(server: &Server, client_id: &'static str) -> Self {
        Self::connect_with(server, ConnectOptions::new(client_id)).await.0
    }

    pub async fn connect_with(server: &Server, options: ConnectOptions) -> (Self, ConnAck) {
        let mut client = Self::unconnected(server);
        client.send_connect(options).await;
        match client.receive().await {
            Packet::ConnAck(connack) => (client, connack),
            other => panic!("no CONNACK but {other:?}"),
        }
    }

    pub async fn send_connect(&mut self, options: ConnectOptions) {
        let connect = Connect {
            keep_alive: options.keep_alive,
            client_id: options.client_id.to_owned(),
            clean_start: options.clean_start,
            properties: Some(options.properties),
        };
        self.send(Packet::Connect(connect, options.will, ConnectAuth::None)).await;
    }

    pub async fn send(&mut self, packet: Packet) {
        let mut output = BytesMut::new();
        packet.write(&mut output, None).unwrap();
        self.send_bytes(&output).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("the broker does not read").unwrap();
    }

    /// Returns the next packet; None when the broker has closed the connection.
    pub async fn receive_any(&mut self) -> Option<Packet> {
        loop {
            match Packet::read(&mut self.input, None) {
                Ok(packet) => return Some(packet),
                Err(_) => {
                    let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input));
                    if read.await.expect("the broker sends nothing").unwrap() == 0 {
                        assert!(self.input.is_empty(), "half a packet at the end");
                        return None;
                    }
                }
            }
        }
    }

    /// Returns the next `count` bytes.
    pub async fn receive_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.input.len() < count {
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input));
            assert!(read.await.expect("the broker sends nothing").unwrap() > 0, "the broker closed");
        }
        self.input.split_to(count).to_vec()
    }

    /// Returns all bytes until the broker closes the connection.
    pub async fn receive_to_end(mut self) -> Vec<u8> {
        while timeout(PATIENCE, self.stream.read_buf(&mut self.input))
            .await
            .expect("it is not closed")
            .unwrap()
            > 0
        {}
        self.input.to_vec()
    }

    /// Reads until the broker is silent; returns whether it has closed the connection.
    pub async fn reads_to_the_end(mut self) -> bool {
        const SILENCE: Duration = Duration::from_millis(100);
        loop {
            match timeout(SILENCE, self.stream.read_buf(&mut self.input)).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }

    pub async fn receive(&mut self) -> Packet {
        self.receive_any().await.expect("the broker closed")
    }

    pub async fn receive_publish(&mut self) -> Publish {
        match self.receive().await {
            Packet::Publish(publish) => publish,
            other => panic!("no PUBLISH but {other:?}"),
        }
    }

    /// Returns the topics of the next messages, and acknowledges them.
    pub async fn receive_topics(&mut self, count: usize) -> Vec<String> {
        let mut topics = Vec::new();
        for _ in 0..count {
            let publish = self.receive_publish().await;
            if publish.qos == QoS::AtLeastOnce {
                self.send(Packet::PubAck(PubAck::new(publish.pkid, None))).await;
            }
            topics.push(String::from_utf8(publish.topic.to_vec()).unwrap());
        }
        topics
    }

    pub async fn receive_puback(&mut self) -> PubAckReason {
        match self.receive().await {
            Packet::PubAck(puback) => puback.reason,
            other => panic!("no PUBACK but {other:?}"),
        }
    }

    /// Returns the reason code of the DISCONNECT, after which the broker must close the connection.
    pub async fn receive_disconnect(&mut self) -> DisconnectReasonCode {
        let reason = match self.receive().await {
            Packet::Disconnect(disconnect) => disconnect.reason_code,
            other => panic!("no DISCONNECT but {other:?}"),
        };
        assert_eq!(self.receive_any().await, None, "after the DISCONNECT");
        reason
    }

    /// Checks that no packet is pending: the next one is the answer to a ping.
    pub async fn expect_nothing(&mut self) {
        self.send(Packet::PingReq).await;
        assert_eq!(self.receive().await, Packet::PingResp);
    }

    pub async fn publish(&mut self, publish: Publish) {
        self.send(Packet::Publish(publish)).await;
    }

    pub async fn subscribe(&mut self, filter: SubscribeFilter) {
        self.subscribe_with(filter, None).await;
    }

    pub async fn subscribe_with(&mut self, filter: SubscribeFilter, id: Option<usize>) -> SubAck {
        let properties = SubscribeProperties { id, user_properties: Vec::new() };
        let subscribe = Subscribe { pkid: 9, filters: vec![filter], properties: Some(properties) };
        self.send(Packet::Subscribe(subscribe)).await;
        match self.receive().await {
            Packet::SubAck(suback) => suback,
            other => panic!("no SUBACK but {other:?}"),
        }
    }

    /// Disconnects, and waits until the broker closes the connection.
    pub async fn disconnect(mut self) {
        self.send(Packet::Disconnect(Disconnect::new(DisconnectReasonCode::NormalDisconnection))).await;
        assert_eq!(self.receive_any().await, None);
    }
}

pub fn qos_0(topic: &str) -> Publish {
    Publish::new(topic, QoS::AtMostOnce, "payload", None)
}

pub fn qos_1(topic: &str, packet_id: u16) -> Publish {
    Publish { pkid: packet_id, ..Publish::new(topic, QoS::AtLeastOnce, "payload", None) }
}

pub fn retained(topic: &str, payload: &'static str) -> Publish {
    let payload = Bytes::from_static(payload.as_bytes());
    Publish { retain: true, payload, ..qos_0(topic) }
}

pub fn with_properties(publish: Publish, change: impl FnOnce(&mut PublishProperties)) -> Publish {
    let mut properties = PublishProperties::default();
    change(&mut properties);
    Publish { properties: Some(properties), ..publish }
}

pub fn filter(path: &str) -> SubscribeFilter {
    SubscribeFilter::new(path, QoS::AtLeastOnce)
}
