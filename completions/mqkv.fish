# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mqkv_global_optspecs
    string join \n b/broker= n/hostname= p/port= notls T/cafile= C/certfile= K/keyfile= P/keypasswordfile= server-name= insecure u/username= password-file= ask-password sat-file= embedded= i/client-id= t/timeout= connect-timeout= retries= keep-alive= x/context= no-context config= trace= o/output= j/json q/quiet v/verbose color= force-write h/help V/version
end

function __fish_mqkv_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_mqkv_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_mqkv_using_subcommand
    set -l cmd (__fish_mqkv_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c mqkv -n "__fish_mqkv_needs_command" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_needs_command" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_needs_command" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_needs_command" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_needs_command" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_needs_command" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_needs_command" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_needs_command" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_needs_command" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_needs_command" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_needs_command" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_needs_command" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_needs_command" -s V -l version -d 'Print version'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "get" -d 'Read a key'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "set" -d 'Write a key'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "del" -d 'Remove keys'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "delete" -d 'Remove keys'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "rm" -d 'Remove keys'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "vdel" -d 'Remove a key if it holds this value'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "watch" -d 'Tell what keys hold, and every change'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "lock" -d 'Hold a lock while a command runs'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "unlock" -d 'Release a lock that was left held'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "holder" -d 'Say who holds a lock'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "keys" -d 'List keys'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "export" -d 'Read keys and values into JSON lines'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "import" -d 'Write the keys and values of an export'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "batch" -d 'Run the lines of a file, one session for all'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "ping" -d 'Measure the way to the store and back'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "doctor" -d 'Find out what is wrong between here and the store, and how to mend it'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "raw" -d 'Send any words to the store and show the reply as sent'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "monitor" -d 'Show every request, reply and notification, live'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "decode" -d 'Say what a topic, a payload or a version is; needs no broker'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "shell" -d 'Open a prompt on one session'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "serve" -d 'Run a broker with a state store'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "context" -d 'List, show, change and try contexts: brokers with all that belongs to them, under a name'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "config" -d 'Show what is in force, and where it comes from'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "man" -d 'Print the manual page, or write those of all verbs into a folder'
complete -c mqkv -n "__fish_mqkv_needs_command" -f -a "help" -d 'Show help for a verb or a topic'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s k -l key -d 'The key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l key-hex -d 'The key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l key-base64 -d 'The key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s f -l file -l valuefile -d 'Write the value to a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l default -d 'What to take for the value if there is no such key' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s k -l key -d 'The key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l key-hex -d 'The key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l key-base64 -d 'The key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l value -d 'The value, literally, whatever it begins with' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s f -l file -l valuefile -d 'Take the value from a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l hex -d 'The value in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l base64 -d 'The value in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l ttl -d 'Let the key expire after this time, for example 250ms, 30s, 5m' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l fence -d 'Attach a fencing token: a version, as a lock hands it out' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l nx -l if-absent -d 'Only if there is no such key'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l nex -l if-absent-or-equal -d 'Only if there is no such key, or it holds this very value'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l fence-env -d 'Attach the fencing token that is in the environment (see `mqkv help environment`)'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l persist -d 'Ask the store to keep the value on disk'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l strip-newline -d 'Take one line feed (or CR LF) off the end of the value'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s k -l key -d 'A key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l key-hex -d 'A key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l key-base64 -d 'A key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l fence -d 'Attach a fencing token: a version, as a lock hands it out' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l ignore-missing -d 'Take it for success if there is no such key'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l fence-env -d 'Attach the fencing token that is in the environment (see `mqkv help environment`)'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand del" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s k -l key -d 'A key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l key-hex -d 'A key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l key-base64 -d 'A key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l fence -d 'Attach a fencing token: a version, as a lock hands it out' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l ignore-missing -d 'Take it for success if there is no such key'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l fence-env -d 'Attach the fencing token that is in the environment (see `mqkv help environment`)'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand delete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s k -l key -d 'A key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l key-hex -d 'A key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l key-base64 -d 'A key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l fence -d 'Attach a fencing token: a version, as a lock hands it out' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l ignore-missing -d 'Take it for success if there is no such key'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l fence-env -d 'Attach the fencing token that is in the environment (see `mqkv help environment`)'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s k -l key -d 'The key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l key-hex -d 'The key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l key-base64 -d 'The key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l value -d 'The value, literally, whatever it begins with' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s f -l file -l valuefile -d 'Take the value from a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l hex -d 'The value in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l base64 -d 'The value in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l fence -d 'Attach a fencing token: a version, as a lock hands it out' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l fence-env -d 'Attach the fencing token that is in the environment (see `mqkv help environment`)'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand vdel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s k -l key -d 'A key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l key-hex -d 'A key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l key-base64 -d 'A key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s c -l count -d 'End after so many changes (what --only leaves of SET, DELETE and RESYNC)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s w -l wait -d 'End after this time; exit code 124 if -c or --until is not reached by then' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l until -d 'End when a key is so: set, del or value=STR; at once if it is so already' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l only -d 'Tell only these: set, del (CURRENT and RESYNC are one or the other)' -r -f -a "set\t'The key has a value'
del\t'The key is gone'"
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l on-gap -d 'What to do when the connection is lost: go on with another, or fail with 69' -r -f -a "continue\t'Make another one, and tell the gap'
fail\t'Give up'"
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l exec-on -d 'Run CMD for these: set, del, resync, initial [default: set,del,resync]' -r -f -a "set\t'The key was set'
del\t'The key was deleted or has expired'
initial\t'The value at the beginning'
resync\t'The value after a lost connection, where it differs from the last one'"
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l no-initial -d 'Do not tell what the keys hold at the beginning'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s k -l key -d 'The key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l key-hex -d 'The key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l key-base64 -d 'The key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l ttl -d 'How long the lease lasts if it is not renewed' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l renew -d 'How long after a renewal the next one is sent [default: a third of --ttl]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s w -l wait -d 'How long to wait for a lock that somebody else holds: 0, a duration, or forever' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s E -l conflict-exit-code -d 'The exit code, in place of 1, where somebody else holds the lock' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l holder -d 'In whose name the lock is held: unique, or two holders pass for one [default: the client id]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l kill-after -d 'How long a command that is told to end may take before it is killed; 0 is allowed' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l token-file -d 'Keep the newest fencing token in this file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l no-kill -d 'Do not stop the command if the lock is lost, only tell'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l once -d 'Take the lock for one lease, print token and holder, and leave; `unlock` releases it'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand lock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s k -l key -d 'The key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l key-hex -d 'The key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l key-base64 -d 'The key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l holder -d 'In whose name the lock is held [default: MQKV_LOCK_HOLDER]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand unlock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s k -l key -d 'The key, as an option' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l key-hex -d 'The key in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l key-base64 -d 'The key in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand holder" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l limit -d 'No more than so many keys' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s 0 -l null -d 'Exact bytes, and a NUL byte after each key'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand keys" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l keys-from -d 'Take the keys from a file, one a line; - reads standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l inflight -d 'How many requests may wait for their answers' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s 0 -l null -d 'The keys in that file are exact bytes, with a NUL byte after each'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l inflight -d 'How many requests may wait for their answers' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l nx -d 'Leave keys that exist'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l dry-run -d 'Look at every line and write nothing'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l keep-going -d 'Write what can be written, whatever becomes of the rest'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l inflight -d 'How many requests may wait for their answers' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l format -d 'What the lines are' -r -f -a "lines\t'Verbs and their arguments, as on the command line'
jsonl\t'JSON objects; the answers are JSON, too'"
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l keep-going -d 'Run all lines, whatever becomes of them'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand batch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s c -l count -d 'How many round trips to make, one after the other' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand ping" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l read-only -d 'Write nothing: the checks that would are skipped'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand raw" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s k -l key -d 'Only what is about this key, or about keys that begin so if it ends in *' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l client -d 'Only what is asked by, answered to or told to this client' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s c -l count -d 'End after so many records' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s w -l wait -d 'End after this time; exit code 124 if -c is not reached by then' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l full -d 'Do not cut lines at the terminal\'s width'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand monitor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -f -a "topic" -d 'Say what a topic of the state store is for'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -f -a "frame" -d 'Say what a payload is'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and not __fish_seen_subcommand_from topic frame hlc" -f -a "hlc" -d 'Take a version or fencing token (a hybrid logical clock) apart'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from topic" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s f -l file -d 'Read the payload from a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l hex -d 'The payload in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from frame" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand decode; and __fish_seen_subcommand_from hlc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand shell" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l listen -d 'Where to listen, as HOST:PORT or a URL; may be given several times [default: 127.0.0.1:1883, with TLS 8883, and, if available, the same port of [::1]]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l ws-origin -d 'Let pages of this origin, such as https://dash.example, use WebSockets from a browser; * for all; may be given several times [default: pages of this machine, and of the address listened on]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l data -d 'Keep everything in this folder, or what --persist says' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l persist -d 'What is kept in the folder of --data' -r -f -a "all\t'Every key; the default'
custom\t'The keys whose SET asked for it once (`mqkv set --persist`), until they are gone'"
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l clear-fence -d 'Take the fencing token from a key in the folder of --data, and end: for one that nobody holds any more' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l key-hex -d 'The key of --clear-fence in hexadecimal digits' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l key-base64 -d 'The key of --clear-fence in base64' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l tls-cert -d 'TLS, with this certificate and those that lead to its CA, in PEM; read again at a SIGHUP' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l tls-key -d 'The certificate\'s key, in PEM; read again at a SIGHUP' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l client-ca -d 'Let in only clients with a certificate from one of these CAs, in PEM; read again at a SIGHUP' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l users -d 'Let in only the users of this file, with their passwords' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l sat-tokens -d 'Let in only bearers of the service account tokens of this file; with --users both' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l authz -d 'Let clients do only what the rules in this file allow; read again at a SIGHUP' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l port-file -d 'Write the first port to this file once it is open' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l log -d 'Tell of every connection on standard error, in this shape [default: text, and of troubles only]' -r -f -a "text\t'A line for people'
json\t'One JSON object a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l admin -d 'Serve a page to look at, /metrics for Prometheus and /healthz there, in HTTP; a port alone is one of 127.0.0.1' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l sys-interval -d 'How often the counters below $SYS/broker are published; 0 for never' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l drain -d 'How long a signal lets what came in be answered; a second one ends at once' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l seed -d 'Begin with the keys of this file, JSON lines as `export` writes them; they replace what --data holds of these keys' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l keys-max -d 'How many keys there may be [default: 10,000,000]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l value-bytes-max -d 'How long a value may be, with K, M or G for more than bytes [default: what fits into a packet, 64M]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l memory-max -d 'How much memory keys and values may take, with what it takes to keep them [default: 512M]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l connections-max -d 'How many connections there may be [default: 10,000]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l watches-max -d 'How many keys a client may watch [default: 100,000]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l queue-bytes-max -d 'How much may wait for a client that does not read; then it is cut off [default: 128M]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l verify -d 'Say what is in the folder of --data and whether it is whole, and end; nothing is changed'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l salvage -d 'Write what can be read of a damaged file to a new one, in DIR/salvaged, and end; the damaged one stays as it is'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -l exec -d 'Run the command behind --, with the variables that lead to this store; end with it, and with its exit code'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and not __fish_seen_subcommand_from user" -a "user" -d 'Add, remove and list the users of a file for --users'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -f -a "add" -d 'Add a user, or give one another password'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -f -a "rm" -d 'Remove a user'
complete -c mqkv -n "__fish_mqkv_using_subcommand serve; and __fish_seen_subcommand_from user" -f -a "ls" -d 'List the users'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "ls" -d 'List the contexts'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "add" -d 'Keep the flags of the connection under a name'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "use" -d 'Make a context the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "show" -d 'Show a context, or the one that is in use'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "edit" -d 'Open the file in $VISUAL or $EDITOR; it is checked before it counts'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "rm" -d 'Remove a context'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and not __fish_seen_subcommand_from ls add use show edit rm test" -f -a "test" -d 'Connect and ping with a context, or with the one that is in use'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l prompt-color -d 'The colour of its name in the prompt' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l read-only -d 'Refuse to write through this context, unless --force-write'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l force -d 'Replace a context of this name'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l none -d 'Have no default context'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from use" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from edit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand context; and __fish_seen_subcommand_from test" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -f -a "show" -d 'Show every setting that is in force'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and not __fish_seen_subcommand_from show path" -f -a "path" -d 'Print where the configuration file is'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l origin -d 'Say where each comes from'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand config; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l all -d 'Write those of all shells into a folder' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s b -l broker -d 'The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s n -l hostname -l host -d 'The broker\'s host; with TLS and port 8883 unless told otherwise' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s p -l port -d 'The broker\'s port' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s T -l cafile -d 'The certificates of the CAs to trust, in PEM [default: those of this machine]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s C -l certfile -d 'The client\'s certificate, and those that lead to its CA, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s K -l keyfile -d 'The client\'s key, in PEM' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s P -l keypasswordfile -d 'The file with the key\'s password' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l server-name -d 'The name that the broker\'s certificate must have [default: the host]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s u -l username -d 'The user\'s name' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l password-file -d 'The file with the user\'s password in its first line; - is standard input' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l sat-file -d 'The file with a Kubernetes service account token; read again for every connection' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l embedded -d 'A broker and store of its own inside this process' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s i -l client-id -d 'The MQTT client id [default: mqkv-HOST-RANDOM]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s t -l timeout -d 'How long to wait for each answer [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l connect-timeout -d 'How long to wait for the connection [default: 5s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l retries -d 'How often to try again for a connection that could not be made [default: 0]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l keep-alive -d 'How long the broker may be silent before it is probed, in whole seconds [default: 10s]' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s x -l context -d 'The context to use: broker, credentials and more under one name (see `mqkv help config`)' -r
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l config -d 'The configuration file [default: ~/.config/mqkv/config.toml]' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l trace -d 'Show every MQTT packet, with its time in UTC, on standard error or in a file' -r -F
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s o -l output -d 'The shape of the output (see `mqkv help formats`)' -r -f -a "auto\t'Text on a terminal, bare values and lines in a pipe'
text\t'For people: escaped, and in words'
raw\t'Exact bytes, no line feed'
hex\t'Hexadecimal digits'
base64\t'Base64'
json\t'One JSON object'
jsonl\t'JSON objects, one a line'"
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l color -d 'Whether to use colour [default: auto]' -r -f -a "auto\t'On a terminal that takes it'
always\t'Always'
never\t'Never'"
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l notls -l no-tls -d 'Plain MQTT, no TLS'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l insecure -d 'Trust any certificate, and so anybody in between'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l ask-password -d 'Ask for the user\'s password on the terminal'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l no-context -d 'Use no context, not even the default one'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s j -l json -d 'Short for --output json'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s q -l quiet -d 'No words about what was done or not done; errors stay'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s v -l verbose -d 'Say more: versions beside values'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -l force-write -d 'Write, although the context is read-only'
complete -c mqkv -n "__fish_mqkv_using_subcommand help" -s h -l help -d 'Print help (see more with \'--help\')'
