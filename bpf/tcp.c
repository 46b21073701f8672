/*
 * TCP by watched process and by peer: bytes sent and received, retransmissions, round-trip times.
 *
 * `traffic` has a process's totals, `links` the part of each peer's address; what is in a total and in no link went to
 * or came from a peer that was not learnt. A peer is learnt from the first segment that comes in, or when the socket
 * closes; until then its bytes wait in the socket's entry. Round-trip times are the kernel's smoothed ones, summed over
 * the segments that come in: a busy connection has more of a say.
 * The kernel leaves a program out where its interrupt came upon another one: some in a thousand retransmissions.
 * A retransmission is one skb, which may hold several segments where the device splits them.
 * Cost: about 0.1 us a socket call and a received segment on the machine, 0.2 us more for watched processes. Caveats:
 * bytes are what the process handed over or took, not what was on the wire. A retransmission happens in an interrupt and
 * carries no process: its socket is looked up among those that a watched process used; the rest count in
 * node_counters[1]; so do those of an accepted connection's first send, until that returns. sendfile and splice do not
 * pass these tracepoints.
 */
#define PROTOCOL_TCP 6
#define FAMILY_IPV4 2
#define STATE_SYN_SENT 2
#define STATE_CLOSE 7
#define MAX_SOCKETS 16384
#define MAX_LINKS 8192

struct traffic {
    u64 sent_bytes;
    u64 received_bytes;
    u64 retransmits;
};
BPF_HASH(traffic, u32, struct traffic, MAX_PROCESSES);

/* family 0: not learnt yet; an IPv4 address is in address[0] */
struct peer {
    u32 tgid;
    u32 family;
    u32 address[4];
};

struct link {
    u64 sent_bytes;
    u64 received_bytes;
    u64 retransmits;
    u64 rtt_sum_us;
    u64 rtt_count;
};
BPF_TABLE("lru_hash", struct peer, struct link, links, MAX_LINKS);

/* a socket that a watched process used: whose (the last sender's), its peer, and what waits until that is learnt */
struct endpoint {
    struct peer peer;
    u64 sent_bytes;
    u64 received_bytes;
    u64 retransmits;
};
BPF_TABLE("lru_hash", u64, struct endpoint, endpoints, MAX_SOCKETS);

static __always_inline struct link *link_of(struct peer *peer) {
    struct peer key = *peer;
    struct link none = {};
    return links.lookup_or_try_init(&key, &none);
}

static __always_inline struct endpoint *endpoint_of(u64 socket, u32 tgid) {
    struct endpoint *known = endpoints.lookup(&socket);
    if (known)
        return known;
    struct endpoint fresh = {.peer = {.tgid = tgid}};
    return endpoints.lookup_or_try_init(&socket, &fresh);
}

/* what waited goes to the link; what is added meanwhile waits for the next time */
static __always_inline void hand_over(struct endpoint *endpoint, struct link *link) {
    u64 sent = endpoint->sent_bytes, received = endpoint->received_bytes, again = endpoint->retransmits;
    if (sent | received | again) {
        __sync_fetch_and_add(&link->sent_bytes, sent);
        __sync_fetch_and_add(&link->received_bytes, received);
        __sync_fetch_and_add(&link->retransmits, again);
        __sync_fetch_and_add(&endpoint->sent_bytes, -sent);
        __sync_fetch_and_add(&endpoint->received_bytes, -received);
        __sync_fetch_and_add(&endpoint->retransmits, -again);
    }
}

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
    struct endpoint *endpoint = endpoint_of((u64)args->sk, tgid);
    if (!endpoint)
        return 0;
    if (endpoint->peer.tgid != tgid)
        endpoint->peer.tgid = tgid;
    struct link *link = endpoint->peer.family ? link_of(&endpoint->peer) : NULL;
    if (link)
        __sync_fetch_and_add(&link->sent_bytes, sent);
    else if (!endpoint->peer.family)
        __sync_fetch_and_add(&endpoint->sent_bytes, sent);
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
    struct endpoint *endpoint = endpoint_of((u64)args->sk, tgid);
    if (!endpoint || endpoint->peer.tgid != tgid)
        return 0;
    struct link *link = endpoint->peer.family ? link_of(&endpoint->peer) : NULL;
    if (link)
        __sync_fetch_and_add(&link->received_bytes, received);
    else if (!endpoint->peer.family)
        __sync_fetch_and_add(&endpoint->received_bytes, received);
    return 0;
}
#endif

#ifdef HAVE_TCP_PROBE_SOCKET
TRACEPOINT_PROBE(tcp, tcp_probe) {
    u64 socket = (u64)args->skaddr;
    struct endpoint *endpoint = endpoints.lookup(&socket);
    if (!endpoint)
        return 0;
    if (!endpoint->peer.family) {
        /* daddr is a sockaddr: family, port, then the address; IPv6 has four bytes of flow before it */
        u32 *address = (u32 *)args->daddr;
        if (args->family == FAMILY_IPV4) {
            endpoint->peer.address[0] = address[1];
        } else {
            endpoint->peer.address[0] = address[2];
            endpoint->peer.address[1] = address[3];
            endpoint->peer.address[2] = address[4];
            endpoint->peer.address[3] = address[5];
        }
        endpoint->peer.family = args->family;
    }
    struct link *link = link_of(&endpoint->peer);
    if (!link)
        return 0;
    hand_over(endpoint, link);
    u32 rtt_us = args->srtt;
    if (rtt_us) {
        __sync_fetch_and_add(&link->rtt_sum_us, rtt_us);
        __sync_fetch_and_add(&link->rtt_count, 1);
    }
    return 0;
}
#endif

/* a send is told when it returns, so a socket is known from its connect; a closed one's address is used again */
#ifdef HAVE_INET_SOCK_SET_STATE
TRACEPOINT_PROBE(sock, inet_sock_set_state) {
    if (args->protocol != PROTOCOL_TCP)
        return 0;
    u64 socket = (u64)args->skaddr;
    if (args->newstate == STATE_SYN_SENT) {
        u32 tgid = bpf_get_current_pid_tgid() >> 32;
        if (processes.lookup(&tgid))
            endpoint_of(socket, tgid);
        return 0;
    }
    if (args->newstate != STATE_CLOSE)
        return 0;
    struct endpoint *endpoint = endpoints.lookup(&socket);
    if (!endpoint)
        return 0;
    if (!endpoint->peer.family) {
        if (args->family == FAMILY_IPV4) {
            endpoint->peer.address[0] = *(u32 *)args->daddr;
        } else {
            u32 *address = (u32 *)args->daddr_v6;
            endpoint->peer.address[0] = address[0];
            endpoint->peer.address[1] = address[1];
            endpoint->peer.address[2] = address[2];
            endpoint->peer.address[3] = address[3];
        }
        endpoint->peer.family = args->family;
    }
    struct link *link = link_of(&endpoint->peer);
    if (link)
        hand_over(endpoint, link);
    endpoints.delete(&socket);
    return 0;
}
#endif

#ifdef HAVE_TCP_RETRANSMIT_SKB
TRACEPOINT_PROBE(tcp, tcp_retransmit_skb) {
    u64 socket = (u64)args->skaddr;
    struct endpoint *endpoint = endpoints.lookup(&socket);
    u32 tgid = endpoint ? endpoint->peer.tgid : 0;
    if (endpoint && processes.lookup(&tgid)) {
        struct traffic none = {};
        struct traffic *sum = traffic.lookup_or_try_init(&tgid, &none);
        if (sum)
            __sync_fetch_and_add(&sum->retransmits, 1);
        struct link *link = endpoint->peer.family ? link_of(&endpoint->peer) : NULL;
        if (link)
            __sync_fetch_and_add(&link->retransmits, 1);
        else if (!endpoint->peer.family)
            __sync_fetch_and_add(&endpoint->retransmits, 1);
        return 0;
    }
    int index = 1;
    u64 *unknown = node_counters.lookup(&index);
    if (unknown)
        __sync_fetch_and_add(unknown, 1);
    return 0;
}
#endif
