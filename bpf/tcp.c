/*
 * TCP bytes sent and received, and segments sent again, by watched process.
 *
 * Cost: about 0.1 us a socket call on the machine, 0.2 us more for watched processes. Caveats: bytes are what the
 * process handed over or took, not what was on the wire. A retransmission happens in an interrupt and carries no
 * process: its socket is looked up among those that a watched process sent on; the rest count in node_counters[1].
 * sendfile and splice do not pass these tracepoints.
 */
#define PROTOCOL_TCP 6

struct traffic {
    u64 sent_bytes;
    u64 received_bytes;
    u64 retransmits;
};
BPF_HASH(traffic, u32, struct traffic, MAX_PROCESSES);
/* socket's address -> process that sent on it last */
BPF_TABLE("lru_hash", u64, u32, socket_owners, 16384);

#ifdef HAVE_SOCK_SEND_LENGTH
TRACEPOINT_PROBE(sock, sock_send_length) {
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    int sent = args->ret;
    if (sent <= 0 || args->protocol != PROTOCOL_TCP || !processes.lookup(&tgid))
        return 0;
    struct traffic none = {};
    struct traffic *sum = traffic.lookup_or_try_init(&tgid, &none);
    if (sum)
        __sync_fetch_and_add(&sum->sent_bytes, sent);
    u64 socket = (u64)args->sk;
    u32 *owner = socket_owners.lookup(&socket);
    if (!owner || *owner != tgid)
        socket_owners.update(&socket, &tgid);
    return 0;
}
#endif

#ifdef HAVE_SOCK_RECV_LENGTH
TRACEPOINT_PROBE(sock, sock_recv_length) {
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    int received = args->ret;
    if (received <= 0 || args->protocol != PROTOCOL_TCP || !processes.lookup(&tgid))
        return 0;
    struct traffic none = {};
    struct traffic *sum = traffic.lookup_or_try_init(&tgid, &none);
    if (sum)
        __sync_fetch_and_add(&sum->received_bytes, received);
    return 0;
}
#endif

#ifdef HAVE_TCP_RETRANSMIT_SKB
TRACEPOINT_PROBE(tcp, tcp_retransmit_skb) {
    u64 socket = (u64)args->skaddr;
    u32 *owner = socket_owners.lookup(&socket);
    if (owner && processes.lookup(owner)) {
        struct traffic none = {};
        struct traffic *sum = traffic.lookup_or_try_init(owner, &none);
        if (sum)
            __sync_fetch_and_add(&sum->retransmits, 1);
        return 0;
    }
    int index = 1;
    u64 *unknown = node_counters.lookup(&index);
    if (unknown)
        __sync_fetch_and_add(unknown, 1);
    return 0;
}
#endif
