#!/usr/bin/perl
# A kubectl for tests: forwards to a server of this machine, and prints the CA and the token of the folder that it is in.
#   fail-VERB      what it prints before it fails
#   slow-VERB      what it prints before it waits
#   deaf           it accepts connections, and forwards none
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use POSIX ();

$| = 1;
my ($folder) = $0 =~ m{^(.*)/} or die;
chdir $folder or die;
my $verb = $ARGV[0];

sub content { open my $file, '<', $_[0] or return undef; local $/; return scalar <$file> }
sub note { open my $file, '>>', $_[0] or die; print $file $_[1] }

note('calls', "@ARGV\n");
if (defined(my $said = content("fail-$verb"))) { print STDERR $said; exit 1 }
if (defined(my $said = content("slow-$verb"))) { print STDERR $said; note('waiting', "$$\n"); sleep 1000 }
if ($verb eq 'get') { print content('ca.pem'); exit }
if ($verb eq 'create') { print content('token'); exit }

my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1:0', Listen => 9) or die;
# In order: from a pod that has gone, the error is printed, and all connections end.
$SIG{TERM} = sub { print STDERR "error: lost connection to pod\n"; kill 'KILL', -$$ };
$SIG{CHLD} = 'IGNORE';
note('forwards', "$$\n");
print 'Forwarding from 127.0.0.1:' . $listener->sockport . " -> 18883\n";
while (1) {
  my $client = $listener->accept or next;
  print 'Handling connection for ' . $listener->sockport . "\n";
  if (-e 'deaf') { our @kept; push @kept, $client; next }
  next if fork;
  $SIG{TERM} = 'DEFAULT';
  my ($port) = content('server') =~ /(\d+)/;
  my $server = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port");
  if (!$server) { print STDERR "E1 1 1 portforward.go:1] an error occurred forwarding 1 -> 18883: refused\n"; POSIX::_exit(1) }
  my $open = IO::Select->new($client, $server);
  while (1) {
    for my $from ($open->can_read) {
      my $to = $from == $client ? $server : $client;
      POSIX::_exit(0) unless sysread $from, my $bytes, 65536;
      while (length $bytes) { my $n = syswrite $to, $bytes or POSIX::_exit(0); substr $bytes, 0, $n, '' }
    }
  }
}
