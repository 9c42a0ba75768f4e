//! Addresses of clients, as owners of what a client takes that has not authenticated.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Returns the part of an address that one host cannot choose: with IPv6, a host has a whole network of 64 bits.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Returns the owner of what a client takes before it has authenticated: its [`network`], without the port, which differs
/// with each connection.
#[must_use]
pub fn address(remote: &str) -> Arc<str> {
    match remote.parse().map(|remote: SocketAddr| network(remote.ip())) {
        Ok(v6 @ IpAddr::V6(_)) => format!("{v6}/64").into(),
        Ok(v4) => v4.to_string().into(),
        // A connection in memory.
        Err(_) => remote.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::broker::principal::Principal;

    #[test]
    fn the_owner_of_an_anonymous_client_is_its_address_without_what_a_host_can_choose() {
        let anonymous = Principal::default();
        let owner = |remote: &str| anonymous.owner(remote);
        assert_eq!(&*owner("192.0.2.1:1024"), "192.0.2.1");
        assert_eq!(owner("[::ffff:192.0.2.1]:1"), owner("192.0.2.1:7"));
        assert_eq!(&*owner("[2001:db8::1]:1"), "2001:db8::/64");
        assert_eq!(owner("[2001:db8::1]:1"), owner("[2001:db8::2]:2"));
        assert_ne!(owner("[2001:db8::1]:1"), owner("[2001:db8:0:1::1]:1"));
        assert_eq!(&*owner("memory"), "memory");
        let ann = Principal { user: Some("ann".into()), ..Principal::default() };
        assert_eq!(&*ann.owner("192.0.2.1:1024"), "user ann");
    }
}
