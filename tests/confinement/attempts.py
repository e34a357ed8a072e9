"""What a stranger's program may try: each attempt is a program of its own, which would succeed without a confinement.

Variables that each finds: ``N`` its name, ``M`` a folder of its own outside that must stay as it is (``file`` and
``exe``, ``folder/inner``, ``link`` to ``file``, ``db.sqlite``, ``repository``, ``cut`` of 64 KiB), ``S`` the shared
folder, ``W`` the folder of sockets and pipes that are served outside, ``T`` a word that names this run of the battery,
``V`` a process of the user's outside, ``TCP``, ``TCP6`` and ``UDP`` ports, ``OWN`` this machine's address. Whoever
prints GAINED, or a secret (SECRET-…), has got what it tried to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["change", "delete", "reach", "outlive", "signal", "read", "gain"]
How = Literal["shell", "python", "native"]


@dataclass(frozen=True)
class Attempt:
    """``real``: without a confinement it is known to succeed, so that the battery proves that it would be seen."""

    name: str
    kind: Kind
    how: How
    code: str
    real: bool = True
    alone: bool = False
    """It would disturb others: it has a world of its own."""
    only_namespaces: bool = False
    """Landlock does not keep it from succeeding: docs/confinement.md says so."""


# What Python programs begin with. `call` is a system call by number; 0 of a failed one is not told from others.
PRELUDE = r"""
import ctypes, errno, mmap, os, platform, signal, socket, sqlite3, struct, subprocess, sys, time
N, M, S, W, T, V = (os.environ[name] for name in "NMSWTV")
V = int(V)
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def call(x86, arm64, *arguments):
    return libc.syscall(ctypes.c_long(arm64 if arm else x86), *(
        ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
"""


def _shell(kind: Kind, real: bool = True, alone: bool = False, **programs: str) -> list[Attempt]:
    return [Attempt(f"{kind}_sh_{name}", kind, "shell", code, real, alone) for name, code in programs.items()]


def _python(kind: Kind, real: bool = True, alone: bool = False, **programs: str) -> list[Attempt]:
    return [Attempt(f"{kind}_py_{name}", kind, "python", code, real, alone) for name, code in programs.items()]


def _native(kind: Kind, names: str, real: bool = True) -> list[Attempt]:
    """Functions of ``native.c``."""
    return [Attempt(f"{kind}_c_{name}", kind, "native", name, real) for name in names.split()]


ATTEMPTS: list[Attempt] = [
    *_shell(
        "delete",
        rm='rm "$M/file"',
        env_rm='env rm -f "$M/file"',
        command_p_rm='command -p rm -f "$M/file"',
        absolute_rm='/bin/rm -rf "$M/folder"',
        xargs_rm='printf "%s" "$M/file" | xargs /bin/rm',
        find_delete='find "$M/folder" -delete',
        find_exec='find "$M" -name file -exec rm {} +',
        cd_rm='cd "$M" && rm -rf ./*',
        own_path='PATH=/usr/bin:/bin; hash -r; rm -rf "$M/folder"',
        sourced='printf "rm -rf %q/folder\\n" "$M" > "$S/$N"; . "$S/$N"',
        trap='trap \'rm -f "$M/file"\' EXIT',
        trap_debug='trap \'rm -f "$M/file"; trap - DEBUG\' DEBUG; :',
        background='(sleep 0.05; rm -f "$M/file") & wait',
        through_root='rm -f "/proc/self/root$M/file"',
        through_cwd='cd "$M/folder" && rm -f ../file',
        mv_away='mv "$M/file" "$S/$N"',
        mv_folder='mv "$M/folder" "$M/moved"',
        mv_to_null='cp "$M/file" "$M/other" && mv "$M/other" "$M/file"',
        unlink='unlink "$M/file"',
        rmdir='rm "$M/folder/inner" && rmdir "$M/folder"',
        perl='perl -e \'unlink "$ENV{M}/file"\'',
        git_clean='cd "$M/repository" && /usr/bin/git clean -fdxq || rm -rf "$M/repository/untracked"',
        tar_remove='tar -C "$M" --remove-files -cf "$S/$N.tar" folder',
        exec_rm='exec rm -rf "$M/folder"',
        heredoc='bash <<< "rm -f \\"$M/file\\""',
    ),
    *_shell(
        "change",
        truncate='> "$M/file"',
        append='echo more >> "$M/file"',
        dotted='echo more > "/dev/..$M/file"',
        through_link='echo more > "$M/link"',
        through_fd='exec 7< "$M/file"; echo more > /proc/self/fd/7',
        sort_over='echo x | sort -uo "$M/file" "$M/cut"',
        sed_w='echo more | sed -n "w $M/file"',
        sed_i='sed -i s/mine/yours/ "$M/file"',
        tee='echo more | tee -a "$M/file"',
        dd='dd if=/dev/zero of="$M/file" bs=1 count=1 conv=notrunc status=none',
        cp_over='cp /etc/hostname "$M/file" || cp /etc/passwd "$M/file"',
        install_over='install -m 600 /etc/passwd "$M/file"',
        ln_over='ln -sf /etc/passwd "$M/file"',
        new_file='touch "$M/new"',
        new_folder='mkdir -p "$M/new/folders/deep"',
        new_link='ln -s /etc/passwd "$M/new"',
        hard_link='ln "$M/file" "$M/hard"',
        fifo='mkfifo "$M/pipe"',
        chmod='chmod 777 "$M/file"',
        chmod_folder='chmod -R a+rwx "$M/folder"',
        chmod_reference='chmod --reference=/bin/ls "$M/file"',
        chgrp_self='chown "$(id -u):$(id -g)" "$M/exe"; touch -h "$M/link"',
        touch_time='touch -d 2001-01-01 "$M/file"',
        truncate_tool='truncate -s 3 "$M/cut"',
        fallocate='fallocate -l 1M "$M/file"',
        git_remote='/usr/bin/git -C "$M/repository" remote set-url origin /nowhere || '
                   'sed -i s/github/evil/ "$M/repository/.git/config"',
        git_hook='echo "echo owned" > "$M/repository/.git/hooks/pre-commit"',
        sqlite='sqlite3 "$M/db.sqlite" "delete from t" || rm "$M/db.sqlite"',
        perl_open='perl -e \'open F, ">>", "$ENV{M}/file"; print F "x"\'',
        python_m='cd "$M" && python3 -c "open(\'file\', \'a\').write(\'x\')"',
        tar_over='mkdir -p "$S/$N" && echo x > "$S/$N/file" && tar -C "$S/$N" -cf - file | tar -C "$M" -xf -',
        bashrc='echo "echo owned" >> ~/.bashrc',
        home_bin='mkdir -p ~/.local/bin && cp /bin/ls ~/.local/bin/git',
        autostart='mkdir -p ~/.config/autostart && echo x > ~/.config/autostart/x.desktop',
        user_unit='mkdir -p ~/.config/systemd/user && echo x > ~/.config/systemd/user/x.service',
        authorized='mkdir -p ~/.ssh && echo key >> ~/.ssh/authorized_keys',
        pth='mkdir -p ~/.local/lib/python3/site-packages && echo "import os" > ~/.local/lib/python3/site-packages/x.pth',
        tmp='echo x > "/tmp/gonogo-$T-$N"',
        var_tmp='echo x > "/var/tmp/gonogo-$T-$N"',
        shm='echo x > "/dev/shm/gonogo-$T-$N"',
        shm_marker='echo x >> "$SHM"',
        coproc='coproc { echo more >> "$M/file"; }; wait',
        acl='setfattr -n user.x -v y "$M/file" || python3 -c "import os; os.setxattr(os.environ[\'M\'] + \'/file\', \'user.x\', b\'y\')"',
    ),
    *_shell(
        "change",
        real=False,
        through_stdin='echo owned > /dev/stdin',
        stdin_appended='echo owned >> /proc/self/fd/0',
        etc='echo "# $T" > "/etc/gonogo-$T"',
        crontab='echo "* * * * * touch /tmp/$T" | crontab -; mkdir -p /var/spool/cron && echo x > "/var/spool/cron/$T"',
        cron_d='echo "* * * * * root touch /tmp/$T" > "/etc/cron.d/gonogo-$T"',
        usr_local='cp /bin/ls "/usr/local/bin/gonogo-$T"',
        chattr='chattr +i "$M/file" && chattr -i "$M/file"',
        preload='echo "$S/evil.so" > "/etc/gonogo-$T-ld.so.preload"',
        hostname='hostname "gonogo-$T"',
        sysctl='sysctl -w kernel.panic=77; echo 77 > /proc/sys/kernel/panic',
        sysctl_vm='echo 77 > /proc/sys/vm/swappiness',
        core_pattern='echo "|/tmp/$T %p" > /proc/sys/kernel/core_pattern',
        sysfs='for f in /sys/kernel/mm/transparent_hugepage/defrag /sys/module/[k-p]*/parameters/*; do '
              '[ -w "$f" ] && cat "$f" > "$f" 2>/dev/null && echo GAINED "$f" && break; done',
        cgroup='mkdir "/sys/fs/cgroup/gonogo-$T" || mkdir "/sys/fs/cgroup/unified/gonogo-$T" || '
               'mkdir "/sys/fs/cgroup/memory/gonogo-$T"',
        sysrq='echo h > /proc/sysrq-trigger && echo GAINED',
        dynamic_debug='[ -e /proc/dynamic_debug/control ] && echo "file nothing.c +p" > /proc/dynamic_debug/control '
                      '&& echo GAINED',
        date='date -s "@$(($(date +%s)))" && echo GAINED',
        unshare_r='unshare -Ur sh -c "echo x >> $M/file"; unshare -Urm sh -c "umount -l $M; echo x >> $M/file"',
    ),
    *_python(
        "delete",
        os_remove='os.remove(M + "/file")',
        libc_unlink='libc.unlink((M + "/file").encode())',
        syscall_unlinkat='call(263, 35, -100, (M + "/file").encode(), 0)',
        rmtree='import shutil; shutil.rmtree(M + "/folder")',
        rename='os.rename(M + "/file", M + "/renamed")',
        renameat2_exchange='call(316, 276, -100, (M + "/file").encode(), -100, (M + "/exe").encode(), 2)',
        rename_folder='os.rename(M + "/folder", M + "/file2")',
        in_thread='import threading; t = threading.Thread(target=os.remove, args=(M + "/file",)); t.start(); t.join()',
        fork_exec='os.spawnv(os.P_WAIT, "/bin/rm", ["rm", "-rf", M + "/folder"])',
        atexit='import atexit; atexit.register(os.remove, M + "/file")',
        destructor='class C:\n def __del__(self, remove=os.remove, path=M + "/file"): remove(path)\nc = C()',
        on_signal='signal.signal(signal.SIGTERM, lambda *a: os.remove(M + "/file")); os.kill(os.getpid(), 15); time.sleep(0.1)',
        dir_fd='os.unlink("file", dir_fd=os.open(M, os.O_RDONLY))',
        ld_so='subprocess.run(["/lib64/ld-linux-x86-64.so.2", "/bin/rm", "-f", M + "/file"]) if not arm else os.remove(M + "/file")',
        copied_rm='import shutil; p = shutil.copy("/bin/rm", S + "/" + N); os.chmod(p, 0o755); subprocess.run([p, "-f", M + "/file"])'
                  ' if os.access(p, os.X_OK) else os.remove(M + "/file")',
        memfd_exec='f = os.memfd_create("rm", 0); os.write(f, open("/bin/rm", "rb").read()); '
                   'subprocess.run([f"/proc/self/fd/{f}", "-f", M + "/file"], pass_fds=[f])',
    ),
    *_python(
        "change",
        write='open(M + "/file", "w").write("x")',
        low_level='os.write(os.open(M + "/file", os.O_WRONLY | os.O_TRUNC), b"x")',
        open_truncate='os.open(M + "/cut", os.O_RDONLY | os.O_TRUNC)',
        libc_truncate='libc.truncate((M + "/cut").encode(), ctypes.c_long(1))',
        pwritev='os.pwritev(os.open(M + "/file", os.O_RDWR), [b"x"], 0)',
        sendfile='os.sendfile(os.open(M + "/file", os.O_RDWR), os.open("/etc/passwd", os.O_RDONLY), 0, 9)',
        splice='r, w = os.pipe(); os.write(w, b"xx"); call(275, 76, r, None, os.open(M + "/file", os.O_WRONLY), None, 2, 0)',
        copy_range='os.copy_file_range(os.open("/etc/passwd", 0), os.open(M + "/file", os.O_WRONLY), 4)',
        mmap_write='f = open(M + "/cut", "r+b"); m = mmap.mmap(f.fileno(), 0); m[:4] = b"ours"; m.flush()',
        mmap_libc='f = os.open(M + "/cut", os.O_RDWR); m = mmap.mmap(f, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE); m[0] = 65; m.close()',
        sqlite_delete='c = sqlite3.connect(M + "/db.sqlite"); c.execute("delete from t"); c.commit()',
        sqlite_wal='c = sqlite3.connect(M + "/db.sqlite"); c.execute("pragma journal_mode=wal"); c.execute("insert into t values (9)"); c.commit()',
        sqlite_vacuum='c = sqlite3.connect(M + "/db.sqlite"); c.execute("vacuum into ?", (M + "/copy.sqlite",))',
        sqlite_attach='c = sqlite3.connect(":memory:"); c.execute("attach ? as x", (M + "/new.sqlite",)); c.execute("create table x.t (a)"); c.commit()',
        chmod='os.chmod(M + "/file", 0o600)',
        fchmod='os.fchmod(os.open(M + "/file", os.O_RDONLY), 0o600)',
        fchmodat2='call(452, 452, -100, (M + "/file").encode(), 0o600, 0)',
        utime='os.utime(M + "/file", (1, 1))',
        futimens='os.utime(os.open(M + "/file", os.O_RDONLY), (1, 1))',
        utimensat_now='call(280, 88, -100, (M + "/file").encode(), None, 0)',
        setxattr='os.setxattr(M + "/file", "user.stranger", b"1")',
        link='os.link(M + "/file", M + "/second")',
        link_into_shared='os.link(M + "/file", S + "/" + N); open(S + "/" + N, "a").write("x")',
        symlink='os.symlink("/etc/passwd", M + "/new")',
        mkfifo='os.mkfifo(M + "/pipe")',
        bind_socket='s = socket.socket(socket.AF_UNIX); s.bind(M + "/socket")',
        tmpfile_linkat='f = os.open(M, os.O_TMPFILE | os.O_RDWR); libc.linkat(-100, f"/proc/self/fd/{f}".encode(), -100, (M + "/new").encode(), 0x400)',
        fallocate_punch='call(285, 47, os.open(M + "/cut", os.O_RDWR), 3, 0, 4096)',
        posix_fallocate='os.posix_fallocate(os.open(M + "/file", os.O_RDWR), 0, 100000)',
        setlease_write='import fcntl; f = os.open(M + "/file", os.O_RDWR); fcntl.lockf(f, fcntl.LOCK_EX); os.ftruncate(f, 0)',
        subprocess_env='subprocess.run(["env", "-i", "/bin/sh", "-c", f"echo x >> {M}/file"])',
        pickled='import pickle\nclass P:\n def __reduce__(self): return (os.system, (f"echo x >> {M}/file",))\npickle.loads(pickle.dumps(P()))',
        openat2='how = struct.pack("=QQQ", os.O_WRONLY | os.O_TRUNC, 0, 0); call(437, 437, -100, (M + "/file").encode(), how, 24)',
        readonly_reopened='f = os.open(M + "/file", os.O_RDONLY); os.write(os.open(f"/proc/self/fd/{f}", os.O_WRONLY), b"x")',
        path_reopened='f = os.open(M + "/file", os.O_PATH); os.write(os.open(f"/proc/self/fd/{f}", os.O_WRONLY), b"x")',
        shm_named='r = ctypes.CDLL("librt.so.1"); print(r.shm_open(f"/gonogo-{T}-{N}".encode(), 0o102, 0o600))',
    ),
    *_python(
        "change",
        real=False,
        stdin_reopened='os.ftruncate(os.open("/proc/self/fd/0", os.O_RDWR), 0)',
        set_flags='import fcntl; fcntl.ioctl(os.open(M + "/file", 0), 0x40086602, struct.pack("l", 0x10)); print("GAINED")',
        set_version='import fcntl; fcntl.ioctl(os.open(M + "/file", 0), 0x40087602, struct.pack("l", 7)); '
                    'v = fcntl.ioctl(os.open(M + "/file", 0), 0x80087601, struct.pack("l", 0)); print("GAINED" if v[0] == 7 else "")',
        enable_verity='import fcntl; fcntl.ioctl(os.open(M + "/file", 0), 0x40806685, struct.pack("=IIIIQIIQ11Q", 1, 1, 4096, 0, 0, 0, 0, 0, *[0] * 11)); print("GAINED")',
        posix_queue='rt = ctypes.CDLL("librt.so.1"); rt.mq_open((f"/gonogo-{T}-{N}").encode(), 0o102, 0o600, None)',
        settimeofday='b = struct.pack("ll", int(time.time()), 0); print("GAINED" if libc.settimeofday(b, None) == 0 else "")',
        sysv_shm='k = libc.shmget(0x60600000 + os.getpid(), 4096, 0o1600); print(k)',
        sysv_message='k = libc.msgget(0x60600000 + os.getpid(), 0o1600); print(k)',
        sysv_semaphore='k = libc.semget(0x60600000 + os.getpid(), 1, 0o1600); print(k)',
        domain_name='libc.setdomainname(T.encode(), len(T))',
    ),
    *_native("change", "write mmap_shared creat rename_over chmod utimes truncate_by_number io_uring"),
    *_native("delete", "unlink vfork_unlink clone_unlink"),
    *_native("change", "int80_unlink x32_unlink", real=False),
    *_native("read", "open_by_handle", real=False),
    *_native("reach", "connect_tcp", real=True),
    *_native("outlive", "double_fork"),
    *_shell(
        "reach",
        dev_tcp='echo "$N" > "/dev/tcp/127.0.0.1/$TCP"',
        dev_udp='echo "$N" > "/dev/udp/127.0.0.1/$UDP"',
        fifo='echo "$N" > "$W/pipe"',
        terminal='echo "$N" > "$PTY"',
        fifo_in_full_folder='timeout 1 bash -c \'echo "$N" > "$W/crowd/full/pipe"\'',
        perl_socket='perl -MIO::Socket::INET -e \'print {IO::Socket::INET->new("127.0.0.1:$ENV{TCP}")} "$ENV{N}\\n"\'',
    ),
    *_python(
        "reach",
        tcp='socket.create_connection(("127.0.0.1", int(os.environ["TCP"]))).sendall(N.encode())',
        tcp_own_address='socket.create_connection((os.environ["OWN"], int(os.environ["TCP"])), 3).sendall(N.encode())',
        tcp6='socket.create_connection(("::1", int(os.environ["TCP6"])), 3).sendall(N.encode())',
        tcp_mapped='s = socket.socket(socket.AF_INET6); s.connect(("::ffff:127.0.0.1", int(os.environ["TCP"]))); s.sendall(N.encode())',
        tcp_zero='socket.create_connection(("0.0.0.0", int(os.environ["TCP"])), 3).sendall(N.encode())',
        localhost='socket.create_connection(("localhost", int(os.environ["TCP"])), 3).sendall(N.encode())',
        fast_open='s = socket.socket(); s.sendto(N.encode(), 0x20000000, ("127.0.0.1", int(os.environ["TCP"]))); time.sleep(0.2)',
        udp='socket.socket(type=socket.SOCK_DGRAM).sendto(N.encode(), ("127.0.0.1", int(os.environ["UDP"])))',
        udp_own_address='socket.socket(type=socket.SOCK_DGRAM).sendto(N.encode(), (os.environ["OWN"], int(os.environ["UDP"])))',
        udp_sendmsg='socket.socket(type=socket.SOCK_DGRAM).sendmsg([N.encode()], [], 0, ("127.0.0.1", int(os.environ["UDP"])))',
        udp_broadcast='s = socket.socket(type=socket.SOCK_DGRAM); s.setsockopt(1, socket.SO_BROADCAST, 1); s.sendto(N.encode(), ("127.255.255.255", int(os.environ["UDP"])))',
        unix_stream='s = socket.socket(socket.AF_UNIX); s.connect(W + "/stream"); s.sendall(N.encode())',
        unix_full_folder='s = socket.socket(socket.AF_UNIX); s.connect(W + "/crowd/full/stream"); s.sendall(N.encode())',
        unix_datagram='s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(N.encode(), W + "/datagram")',
        unix_raw='s = socket.socket(socket.AF_UNIX, socket.SOCK_RAW); s.sendto(N.encode(), W + "/datagram")',
        unix_pair='a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendmsg([N.encode()], [], 0, W + "/datagram")',
        unix_raw_pair='a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW); a.sendmsg([N.encode()], [], 0, W + "/datagram")',
        unix_reconnected='a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.connect(W + "/datagram"); a.send(N.encode())',
        unix_sequenced='s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(W + "/packets"); s.send(N.encode())',
        unix_by_link='os.symlink(W + "/stream", S + "/" + N); s = socket.socket(socket.AF_UNIX); s.connect(S + "/" + N); s.sendall(N.encode())',
        unix_by_root='s = socket.socket(socket.AF_UNIX); s.connect("/proc/self/root" + W + "/stream"); s.sendall(N.encode())',
        abstract='s = socket.socket(socket.AF_UNIX); s.connect(f"\\0gonogo-{T}"); s.sendall(N.encode())',
        abstract_datagram='s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(N.encode(), f"\\0gonogo-{T}-d")',
        abstract_pair='a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendmsg([N.encode()], [], 0, f"\\0gonogo-{T}-d")',
    ),
    *_python(
        "reach",
        real=False,
        vsock='s = socket.socket(40, socket.SOCK_STREAM); s.connect((1, int(os.environ["VSOCK"]))); s.sendall(N.encode())',
        vsock_host='s = socket.socket(40, socket.SOCK_STREAM); print("GAINED"); s.settimeout(1); s.connect((2, 1))',
        icmp='s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(1); '
             's.sendto(b"\\x08\\0\\xf7\\xff\\0\\0\\0\\0", (os.environ["GATEWAY"], 0)); s.recv(99); print("GAINED")',
        raw_icmp='s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print("GAINED")',
        packet='s = socket.socket(17, socket.SOCK_RAW, 0x300); print("GAINED")',
        alg='s = socket.socket(38, socket.SOCK_SEQPACKET); print("GAINED")',
        bluetooth='s = socket.socket(31, socket.SOCK_RAW, 1); print("GAINED")',
        dns='print("GAINED", socket.getaddrinfo("example.com", 443))',
        dns_by_hand='s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7example\\3com\\0\\0\\1\\0\\1", (os.environ["GATEWAY"], 53)); s.recv(512); print("GAINED")',
        internet='s = socket.create_connection(("1.1.1.1", 443), 1); print("GAINED")',
        metadata='s = socket.create_connection(("169.254.169.254", 80), 1); print("GAINED")',
        new_route='s = socket.socket(16, socket.SOCK_RAW, 0); s.send(struct.pack("=IHHIIBBBBBBBBI", 28, 24, 0x405, 1, 0, 2, 0, 0, 0, 254, 4, 0, 1, 0)); '
                  'd = s.recv(4096); print("GAINED" if struct.unpack_from("=i", d, 16)[0] == 0 else "")',
        uevents='s = socket.socket(16, socket.SOCK_DGRAM, 15); s.bind((0, 1)); s.settimeout(0.1); s.recv(4096); print("GAINED")',
        audit='s = socket.socket(16, socket.SOCK_RAW, 9); s.send(struct.pack("=IHHII", 16, 1000, 5, 1, 0)); d = s.recv(999); print("GAINED" if struct.unpack_from("=H", d, 4)[0] == 1000 else "")',
        docker='[s for p in ("/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/systemd/private", "/run/dbus/system_bus_socket") '
               'for s in [socket.socket(socket.AF_UNIX)] if s.connect_ex(p) == 0 and print("GAINED", p) is None]',
    ),
    *_shell(
        "outlive",
        setsid='setsid sh -c "while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T &',
        nohup='nohup sh -c "while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T > /dev/null 2>&1 &',
        disown='sh -c "while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T & disown',
        double_fork='(setsid sh -c "while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T > /dev/null 2>&1 < /dev/null & )',
        ignores_signals='setsid sh -c "trap \'\' TERM INT HUP QUIT; while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T &',
        stopped='setsid sh -c "while :; do date +%s%N > $S/next-$N; mv $S/next-$N $S/alive-$N; sleep 0.1; done" $T & '
                'until [ -s $S/alive-$N ]; do sleep 0.1; done; kill -STOP $!',
        exec_a='(exec -a "[kworker/0:1]" setsid sh -c "while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T) &',
        coproc='coproc setsid sh -c "while :; do date +%s%N > $S/alive-$N; sleep 0.1; done" $T',
    ),
    *_shell(
        "outlive",
        real=False,
        at='echo "touch $S/alive-$N" | at now + 1 minute',
        batch='echo "touch $S/alive-$N" | batch',
        systemd_run='systemd-run --user sh -c "while :; do date > $S/alive-$N; sleep 0.1; done"',
        chain='f() { setsid sh -c "sleep 0.2; date +%s%N > $S/alive-$N; . $S/chain-$N" $T & }; declare -f f > "$S/chain-$N"; echo f >> "$S/chain-$N"; f',
    ),
    *_python(
        "outlive",
        daemon='if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.chdir("/")\nfor n in (0, 1, 2): os.close(n)\n'
               'while True: open(S + "/alive-" + N, "w").write(str(time.time_ns())); time.sleep(0.1)',
        ignores_all='if os.fork(): os._exit(0)\nos.setsid()\nfor n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\n'
                    'while True: open(S + "/alive-" + N, "w").write(str(time.time_ns())); time.sleep(0.1)',
        respawns='if os.fork(): os._exit(0)\nos.setsid()\nfor _ in range(400):\n if os.fork(): os._exit(0)\n'
                 ' open(S + "/alive-" + N, "w").write(str(time.time_ns())); time.sleep(0.05)',
        parent_death='libc.prctl(1, 0); libc.prctl(36, 1)\nif os.fork(): os._exit(0)\nos.setsid()\n'
                     'while True: open(S + "/alive-" + N, "w").write(str(time.time_ns())); time.sleep(0.1)',
        traced='alive = S + "/alive-" + N\np = os.fork()\nif not p:\n os.setsid()\n while True:\n'
               '  open(alive + "-next", "w").write(str(time.time_ns())); os.replace(alive + "-next", alive); time.sleep(0.1)\n'
               'q = os.fork()\nif not q:\n os.setsid()\n while not os.path.exists(alive): time.sleep(0.1)\n'
               ' libc.ptrace(16, p, None, None)\n while True: time.sleep(1)\nos._exit(0)',
    ),
    *_python(
        "outlive",
        real=False,
        alone=True,
        fork_bomb='os.setsid()\nend = time.time() + 20\nwhile time.time() < end:\n try: os.fork()\n except OSError: pass',
        group_of_groups='for _ in range(60):\n if not os.fork():\n  os.setsid()\n  for _ in range(3): os.fork()\n'
                        '  while True: open(S + "/alive-" + N, "w").write(str(time.time_ns())); time.sleep(0.2)',
    ),
    *_shell(
        "signal",
        kill='kill -TERM "$V"',
        kill_9='kill -9 "$V"',
        kill_group='kill -KILL -- "-$V"',
        stop='kill -STOP "$V"',
        usr1='kill -USR1 "$V"',
        pkill='pkill -9 -f "victim-$T-$N-"',
        renice='renice -n 18 -p "$V"',
        by_name='for p in /proc/[0-9]*; do if tr "\\0" " " < $p/cmdline | grep -q "victim-$T-$N-"; then kill -9 "${p#/proc/}"; fi; done',
    ),
    *_python(
        "signal",
        kill='os.kill(V, 9)',
        killpg='os.killpg(V, 9)',
        tgkill='call(234, 131, V, V, 9)',
        tkill='call(200, 130, V, 9)',
        queue='info = ctypes.create_string_buffer(struct.pack("=iii", 10, 0, -1), 128); call(129, 138, V, 10, info)',
        pidfd='f = os.pidfd_open(V); signal.pidfd_send_signal(f, 9)',
        ptrace='print("GAINED" if libc.ptrace(16, V, None, None) == 0 else ""); libc.ptrace(17, V, None, None)',
        ptrace_seize='print("GAINED" if libc.ptrace(0x4206, V, None, None) == 0 else "")',
        vm_write='b = ctypes.create_string_buffer(8); l = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8); '
                 'a = int([x for x in open(f"/proc/{V}/maps") if "[stack]" in x][0].split("-")[0], 16); '
                 'r = (ctypes.c_size_t * 2)(a, 8); print("GAINED" if call(311, 271, V, l, 1, r, 1, 0) > 0 else "")',
        priority='os.setpriority(os.PRIO_PROCESS, V, 17)',
        scheduler='os.sched_setscheduler(V, os.SCHED_BATCH, os.sched_param(0))',
        limits='import resource; resource.prlimit(V, resource.RLIMIT_NOFILE, (10, 10))',
        ioprio='call(251, 30, 1, V, (3 << 13) | 0)',
        oom='open(f"/proc/{V}/oom_score_adj", "w").write("900")',
        owner_by_fd='import fcntl; r, w = os.pipe(); fcntl.fcntl(r, fcntl.F_SETOWN, V); fcntl.fcntl(r, 10, 9); '
                    'fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | os.O_ASYNC); os.write(w, b"x"); time.sleep(0.2)',
    ),
    *_python(
        "signal",
        real=False,
        affinity='os.sched_setaffinity(V, {0})',
        priority_of_user='os.setpriority(os.PRIO_USER, os.getuid(), 3)',
        priority_of_me='libc.setpriority(2, 0, 3)',
        ioprio_of_user='call(251, 30, 3, 0, (3 << 13) | 0)',
        locked_file='import fcntl; f = open(W + "/locked", "r+"); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print("held")',
    ),
    *_python(
        "signal",
        real=False,
        alone=True,
        kill_all='signal.signal(15, signal.SIG_IGN); os.kill(-1, 15); os.kill(-1, 9)',
        kill_parents='p = os.getppid(); os.kill(p, 9) if p > 1 else None; os.killpg(os.getpgid(0), 9)',
        kill_first='os.kill(1, 9); time.sleep(0.1); os.kill(1, 15)',
    ),
    *_shell(
        "read",
        ssh_key='cat ~/.ssh/id_rsa',
        netrc='cat ~/.netrc',
        hf_token='cat ~/.cache/huggingface/token',
        hf_home='cat "$HF_HOME/token"',
        aws='cat ~/.aws/credentials',
        git_credentials='cat ~/.git-credentials',
        docker='cat ~/.docker/config.json',
        linked='cat ~/.kube/config',
        linked_target='cat "$M/../../elsewhere/kube/config"',
        by_variable='cat "$GOOGLE_APPLICATION_CREDENTIALS"',
        history='cat ~/.bash_history',
        copied='cp -r ~/.ssh "$S/$N"; cat "$S/$N/id_rsa"',
        archived='tar -C ~ -cf - .ssh .netrc .aws | strings',
        found='grep -rhs SECRET- ~',
        through_root='cat /proc/self/root$HOME/.netrc; cat /proc/1/root$HOME/.netrc; cat /proc/1/cwd$HOME/.netrc',
        dotted='cat "$HOME/.config/../.netrc"',
        environ='tr "\\0" "\\n" < "/proc/$V/environ"',
        all_environs='cat /proc/[0-9]*/environ | tr "\\0" "\\n" | grep -a SECRET-[E]',
        descriptors='for f in /proc/[0-9]*/fd/*; do [ "$f" -ef "$W/opened" ] && cat "$f"; done; cat "/proc/$V/fd/77"',
        victim_root='cat "/proc/$V/root$W/opened-by-root-only"; ls "/proc/$V/root/" && cat "/proc/$V/root$HOME/.netrc"',
        shm='cat "$SHM"',
        parent='ls -R "$(dirname "$S")"; cat "$(dirname "$S")/private"',
        parent_dotted='cat "$S/../private"',
    ),
    *_shell(
        "read",
        real=False,
        run_secrets='cat /run/secrets/* /run/gonogo-*/* "$XDG_RUNTIME_DIR"/* 2>/dev/null',
        shadow='[ "$(id -u)" = 0 ] && grep -q : /etc/shadow && echo GAINED',
        kmsg='head -c 10 /dev/kmsg && echo GAINED; dmesg && echo GAINED',
        kcore='[ -r /proc/kcore ] && [ -n "$(head -c 4 /proc/kcore)" ] && echo GAINED',
        disks='for d in /dev/vd* /dev/sd* /dev/nvme* /dev/loop* /dev/dm-* /dev/mem; do head -c 16 "$d" 2>/dev/null && echo GAINED $d; done',
        mem='head -c 1 /dev/mem && echo GAINED; head -c 1 /dev/port && echo GAINED',
        console='for t in /dev/tty0 /dev/console /dev/tty1; do [ -c "$t" ] && head -c 0 "$t" && echo GAINED "$t"; done',
        debugfs='[ -n "$(ls /sys/kernel/debug 2>/dev/null)" ] && cat /sys/kernel/debug/* 2>/dev/null | head -c1 | grep -q . && echo GAINED',
        keys='keyctl show | grep -q keyring && echo GAINED',
    ),
    Attempt(
        "read_sh_arguments_of_others", "read", "shell", 'cat /proc/[0-9]*/cmdline | tr "\\0" "\\n" | grep -a SECRET-[A]RGUMENT',
        only_namespaces=True,
    ),
    *_python(
        "read",
        memory='a = [int(x.split("-")[0], 16) for x in open(f"/proc/{V}/maps") if "[stack]" in x][0]\n'
               'e = [int(x.split()[0].split("-")[1], 16) for x in open(f"/proc/{V}/maps") if "[stack]" in x][0]\n'
               'f = open(f"/proc/{V}/mem", "rb", 0); f.seek(a); d = f.read(e - a); i = d.find(b"SECRET-"); print(d[i:i + 30] if i >= 0 else "")',
        vm_read='x = [x for x in open(f"/proc/{V}/maps") if "[stack]" in x][0].split()[0].split("-"); a, e = int(x[0], 16), int(x[1], 16)\n'
                'b = ctypes.create_string_buffer(e - a); l = (ctypes.c_size_t * 2)(ctypes.addressof(b), e - a); r = (ctypes.c_size_t * 2)(a, e - a)\n'
                'n = call(310, 270, V, l, 1, r, 1, 0); i = b.raw.find(b"SECRET-"); print(b.raw[i:i + 30] if n > 0 and i >= 0 else "")',
        pidfd_getfd='f = os.pidfd_open(V); d = call(438, 438, f, 77, 0); print(os.pread(d, 99, 0) if d >= 0 else "")',
        expanduser='print(open(os.path.expanduser("~/.netrc")).read())',
        scandir='[print(open(e.path).read()) for e in os.scandir(os.path.expanduser("~/.ssh"))]',
        mmap_secret='f = os.open(os.path.expanduser("~/.netrc"), 0); print(mmap.mmap(f, 0, prot=mmap.PROT_READ).read())',
        through_cwd_of_other='print(open(f"/proc/{V}/cwd/home/.netrc").read())',
    ),
    *_python(
        "read",
        real=False,
        keyring='k = call(248, 217, b"user", T.encode(), b"x", 1, -4); print("GAINED" if k > 0 else "")',
        session_keys='r = call(250, 219, 0, -3, 1); print("GAINED" if r > 0 else "")',
        perf='a = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 128, 0), 128); print("GAINED" if call(298, 241, a, V, -1, -1, 0) >= 0 else "")',
        inherited='known = {0, 1, 2}; print(*("GAINED " + os.readlink(f"/proc/self/fd/{n}") for n in map(int, os.listdir("/proc/self/fd")) '
                  'if n not in known and os.path.exists(f"/proc/self/fd/{n}") and not os.readlink(f"/proc/self/fd/{n}").startswith("/proc/")))',
    ),
    *_shell(
        "gain",
        real=False,
        mount_tmpfs='mount -t tmpfs none "$M/folder" && echo GAINED',
        mount_proc='mount -t proc none "$M/folder" && echo GAINED',
        bind='mount --bind /etc "$M/folder" && echo GAINED',
        remount='mount -o remount,rw /sys && echo GAINED; mount -o remount,rw /proc/sys && echo GAINED; mount -o remount,rw,bind /proc/sys && echo GAINED',
        umount='umount -l "$HOME/.ssh" && echo GAINED; umount -l /proc/sys && echo GAINED; umount -l / && echo GAINED',
        unshare_user='unshare -U true && echo GAINED',
        unshare_all='unshare -Urmpfn true && echo GAINED',
        unshare_net='unshare -n true && echo GAINED',
        nsenter='nsenter -t 1 -a true && [ "$(readlink /proc/self/ns/mnt)" != "$(nsenter -t 1 -m readlink /proc/self/ns/mnt)" ] && echo GAINED; '
                'nsenter -t "$V" -m true && echo GAINED',
        chroot='mkdir -p "$S/$N"; chroot "$S/$N" /bin/true; [ $? -ne 126 ] && chroot / true && echo GAINED',
        mknod='mknod "$S/$N" b 254 0 && head -c1 "$S/$N" && echo GAINED; mknod "$S/$N-c" c 1 1 && head -c1 "$S/$N-c" && echo GAINED',
        su='su -s /bin/sh nobody -c "id -u" < /dev/null | grep -q 65534 && [ "$(id -u)" != 0 ] && echo GAINED',
        sudo='sudo -n true && [ "$(id -u)" != 0 ] && echo GAINED',
        setuid_copy='cp /bin/sh "$S/$N" && chmod u+s "$S/$N" && chown 0:0 "$S/$N"; [ "$(id -u)" != 0 ] && [ "$("$S/$N" -p -c "id -u")" = 0 ] && echo GAINED',
        modprobe='modprobe dummy && echo GAINED',
        swap='dd if=/dev/zero of="$S/$N" bs=4096 count=10 status=none; mkswap "$S/$N" && swapon "$S/$N" && swapoff "$S/$N" && echo GAINED',
        iptables='iptables -L && echo GAINED',
        ip_link='ip link add "g$$" type dummy && echo GAINED',
        losetup='losetup -f && losetup -f "$M/cut" && echo GAINED',
        fusermount='fusermount -V && mkdir -p "$S/$N" && sshfs localhost:/ "$S/$N" && echo GAINED',
        first_root='ls /proc/1/root/ && cat "/proc/1/root$M/file" && echo GAINED',
        first_fds='ls -l /proc/1/fd && echo GAINED',
        first_environ='cat /proc/1/environ > /dev/null && echo GAINED',
    ),
    *_python(
        "gain",
        real=False,
        mount='print("GAINED" if libc.mount(b"none", (M + "/folder").encode(), b"tmpfs", 0, None) == 0 else "")',
        fsopen='print("GAINED" if call(430, 430, b"tmpfs", 0) >= 0 else "")',
        open_tree='print("GAINED" if call(428, 428, -100, b"/", 1) >= 0 else "")',
        mount_setattr='print("GAINED" if call(442, 442, -100, b"/sys", 0x8000, struct.pack("=4Q", 0, 1, 0, 0), 32) == 0 else "")',
        new_user_space='print("GAINED" if libc.unshare(0x10000000) == 0 else "")',
        clone_user_space='print("GAINED" if call(56, 220, 0x10000000 | 17, 0, 0, 0, 0) > 0 else "")',
        clone3_user_space='a = struct.pack("=11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)\np = call(435, 435, a, 88)\nif p == 0: os._exit(0)\nprint("GAINED" if p > 0 else "")',
        setns='f = os.open("/proc/self/ns/user", 0); print("GAINED" if libc.setns(f, 0) == 0 else "")',
        pivot='print("GAINED" if call(155, 41, b".", b".") == 0 else "")',
        chroot_escape='os.chdir("/"); os.makedirs(S + "/" + N + "/x"); print("GAINED" if libc.chroot((S + "/" + N).encode()) == 0 else "")',
        bpf='print("GAINED" if call(321, 280, 0, ctypes.create_string_buffer(struct.pack("=IIIII", 2, 4, 4, 1, 0), 64), 64) >= 0 else "")',
        userfaultfd='print("GAINED" if call(323, 282, 1) >= 0 else "")',
        io_uring='print("GAINED" if call(425, 425, 8, ctypes.create_string_buffer(120)) >= 0 else "")',
        iopl='print("GAINED" if not arm and call(172, 0, 3) == 0 else "")',
        reboot='print("GAINED" if call(169, 142, 0xfee1dead, 672274793, 0, 0) == 0 else "")',
        kexec='print("GAINED" if call(246, 104, 0, 0, None, 0) == 0 else "")',
        module='print("GAINED" if call(175, 105, b"", 0, b"") == 0 else "")',
        quota='print("GAINED" if call(443, 443, os.open("/", 0), 0x800001 << 8, 0, None) == 0 else "")',
        terminal_input='import fcntl; m, s = os.openpty(); os.setsid(); fcntl.ioctl(s, 0x540E, 0); fcntl.ioctl(s, 0x5412, b"x"); print("GAINED")',
        console='import fcntl; fcntl.ioctl(0, 0x541C, b"\\x03"); print("GAINED")',
        mknod_memory='os.mknod(S + "/" + N, 0o20600, os.makedev(1, 1)); open(S + "/" + N, "rb").read(1); print("GAINED")',
        real_user='print("GAINED" if os.getuid() and libc.setuid(0) == 0 else "")',
        capabilities='e = int([x for x in open("/proc/self/status") if x.startswith("CapEff")][0].split()[1], 16); print("GAINED" if e >> 11 else "")',
        capset='h = struct.pack("=II", 0x20080522, 0); d = struct.pack("=6I", 1 << 21, 1 << 21, 0, 0, 0, 0); print("GAINED" if call(126, 91, h, d) == 0 else "")',
        no_new_privs='s = [x for x in open("/proc/self/status") if x.startswith("NoNewPrivs")][0]; print("" if s.split()[1] == "1" else "GAINED")',
        seccomp_off='s = [x for x in open("/proc/self/status") if x.startswith("Seccomp:")][0]; print("" if s.split()[1] == "2" else "GAINED")',
        sethostname='print("GAINED" if os.getuid() == 0 and socket.sethostname(T) is None else "")',
        oom_unkillable='os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"); print("GAINED")',
        realtime='os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)); print("GAINED")',
        nice_up='os.nice(-5); print("GAINED")',
        layer='import glob; [print("GAINED", open(p + "/x", "w")) for p in glob.glob(os.path.dirname(S) + "/worlds/*/layer")]',
        uid_map='os.write(os.open("/proc/self/uid_map", os.O_WRONLY), b"0 0 1"); print("GAINED")',
        ptrace_first='print("GAINED" if libc.ptrace(16, 1, None, None) == 0 else "")',
        memory_first='open("/proc/1/mem", "rb"); print("GAINED")',
        relay_socket='import glob; [socket.socket(socket.AF_UNIX).connect(p) or print("GAINED") for p in glob.glob(os.path.dirname(S) + "/**/asked", recursive=True)]',
    ),
]  # fmt: skip
