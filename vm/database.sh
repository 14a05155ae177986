# shellcheck shell=sh
# Cells of PostgreSQL on a volume on a LUN of a SAN; follows /lib/san.sh. The database is on ext4 on the block device of the
# volume `data`, and pgbench is its load. Every transaction that pgbench counts has to be in the history, and the balances
# have to be the sums of it, as pgbench itself promises.
# shellcheck disable=SC2034,SC2154  # what is of the test, and of san.sh
one_mib=192 # in the place of those without a database

# as_postgres COMMAND...: which refuses to be root's.
as_postgres() {
    su postgres -c "export LC_ALL=C PGHOST=/tmp PGDATABASE=postgres PATH=/usr/lib/postgresql/15/bin:$PATH; $*"
}
sql() {
    as_postgres "psql --no-psqlrc --tuples-only --no-align --command '$1'" || fail "sql: $1"
}
begin_database() {
    as_postgres "exec postgres -D /mnt/database" >>/tmp/postgres 2>&1 &
    database=$!
    wait_until 120 as_postgres "psql --command 'select 1' >/dev/null 2>&1"
}
# end_database: a shutdown in order, after which the checksum of each page is compared.
end_database() {
    as_postgres "pg_ctl stop --pgdata /mnt/database --mode fast --timeout 300 >/dev/null" || fail "end of the database"
    wait "$database" || fail "the database: $(tail /tmp/postgres)"
}
make_database() {
    echo root:x:0:0:root:/:/bin/sh >/etc/passwd
    echo postgres:x:70:70:postgres:/tmp:/bin/sh >>/etc/passwd
    chmod 1777 /tmp
    tar -x -f /postgres.tar -C /
    rm /postgres.tar
    mkdir /mnt/database
    chown postgres /mnt/database
    as_postgres "initdb --pgdata /mnt/database --data-checksums --no-locale --encoding UTF8 --wal-segsize 1" \
        >/tmp/initdb 2>&1 || fail "initdb: $(tail /tmp/initdb)"
    cat >>/mnt/database/postgresql.conf <<END
unix_socket_directories = '/tmp'
listen_addresses = ''
shared_buffers = 4MB # most pages are read from the volume
checkpoint_timeout = 30s
max_wal_size = 16MB
wal_sync_method = fdatasync
END
    begin_database
    as_postgres "pgbench --initialize --quiet" >/tmp/pgbench 2>&1 || fail "pgbench: $(cat /tmp/pgbench)"
    sql "create extension amcheck" >/dev/null
    committed=0
}
# Each turn drops what Linux has cached of the files.
transactions() {
    while [ -e /tmp/loading ]; do
        echo 1 >/proc/sys/vm/drop_caches
        as_postgres "cd /tmp && pgbench --no-vacuum --client 4 --time 3 --log --log-prefix /tmp/transactions" \
            >/tmp/pgbench 2>&1 || return 1
        grep -q '^number of failed transactions: 0 ' /tmp/pgbench || return 1
        echo turn >>/tmp/loads
    done
}
# under_transactions COMMAND...: runs it under this load, and sets `stall_ms` and `ios`, which are transactions.
under_transactions() {
    touch /tmp/loading
    rm -f /tmp/transactions.* /tmp/loads
    transactions &
    loader=$!
    wait_until 120 test -s /tmp/loads
    "$@"
    sleep 1
    kill -0 "$loader" || fail "the load ended: $(cat /tmp/pgbench)"
    rm /tmp/loading
    wait "$loader" || fail "the load: $(cat /tmp/pgbench)"
    stall_ms=$(cat /tmp/transactions.* | awk '$3 > most { most = $3 } END { print int(most / 1000) }')
    ios=$(cat /tmp/transactions.* | wc -l)
    [ "$ios" -gt 0 ] || fail "no transaction"
    committed=$((committed + ios))
}
# is_consistent: by its balances, its indexes, and the checksums of pages that come from the block device.
is_consistent() {
    end_database
    umount /mnt || fail umount
    e2fsck -f -n "$data" >/tmp/fsck 2>&1 || fail "$(cat /tmp/fsck)"
    mount -t ext4 -o noatime "$data" /mnt || fail mount
    as_postgres "pg_checksums --check /mnt/database" >/tmp/checksums 2>&1 || fail "pg_checksums: $(cat /tmp/checksums)"
    begin_database
    balances=$(sql "select sum(abalance) from pgbench_accounts union all select sum(tbalance) from pgbench_tellers
        union all select sum(bbalance) from pgbench_branches union all select sum(delta) from pgbench_history")
    [ "$(echo "$balances" | sort -u | wc -l)" = 1 ] || fail "balances: $balances"
    [ "$(echo "$balances" | wc -l)" = 4 ] || fail "balances: $balances"
    rows=$(sql "select count(*) from pgbench_history")
    [ "$rows" = "$committed" ] || fail "$committed transactions were committed, and $rows are there"
    as_postgres "pg_amcheck --heapallindexed" >/tmp/amcheck 2>&1 || fail "pg_amcheck: $(cat /tmp/amcheck)"
}
restart_warm() {
    sleep 2 # a commit of the pool
    end
    serve
    hit=$(count blocks_hit)
    sleep 2
    hit=$(($(count blocks_hit) - hit))
    [ "$hit" -gt 0 ] || fail "no block hit"
}
# The checksums show a sector of the accounts that is lost.
sees_a_lost_page() {
    file=$(sql "select pg_relation_filepath(\$\$pgbench_accounts\$\$)")
    end_database
    dd if=/dev/zero of="/mnt/database/$file" bs=512 seek=$((3 * 16 + 8)) count=1 conv=notrunc 2>/dev/null
    as_postgres "pg_checksums --check /mnt/database" >/tmp/checksums 2>&1 && fail "pg_checksums sees no lost page"
    grep -q '^Bad checksums: *1$' /tmp/checksums || fail "pg_checksums: $(cat /tmp/checksums)"
    umount /mnt
    end
}

# database_cells GONE_S
database_cells() {
    begin_san
    make_database
    under_transactions pull_each_path
    is_consistent
    echo "each path pulled: no error in $ios transactions, the longest took $stall_ms ms"
    under_transactions kill_target
    is_consistent
    echo "target killed and back: no error in $ios transactions, the longest took $stall_ms ms"
    under_transactions restart_warm
    is_consistent
    echo "warm restart: no error in $ios transactions, the longest took $stall_ms ms; at once $hit blocks hit"
    sees_a_lost_page
    echo "database: all of $committed transactions are there, checksums, indexes and balances are as they should be"
}
