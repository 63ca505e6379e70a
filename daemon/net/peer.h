/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_NET_PEER_H
#define STEPD_DAEMON_NET_PEER_H

/*
 * Who is at the other end of a connection, and what he may do. Read from the
 * kernel once, at accept; nothing that a client sends is ever asked.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct conf;

#define PEER_MAX_GROUPS 1024 /* more are not looked at */
#define PEER_NOBODY 65534

struct peer {
    pid_t pid;
    uint32_t uid, gid;
    /* What the lists allow. An admin may do everything. Who sees all is told
     * the daemon's totals, others their own. */
    bool may_generate, may_observe, is_admin, may_delegate, sees_all;
};

/* Everything the lists are compared with. */
struct peer_ids {
    pid_t pid;
    uint32_t uid, gid;
    uint32_t groups[PEER_MAX_GROUPS];
    int n_groups;
};

/* SO_PEERCRED and SO_PEERGROUPS of a connected Unix socket. -errno. */
int peer_read(int fd, struct peer_ids *ret);
/* The two gates of design.md section 3. self: the daemon's own uid. Returns
 * false where the peer may do nothing at all. */
bool peer_judge(const struct peer_ids *ids, const struct conf *c, uint32_t self,
                struct peer *ret);

#endif
