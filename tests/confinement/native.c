/* What a compiled program may try: its argument names the attempt. See attempts.py for the variables. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char file[4096], cut[4096], other[4096];

static int unlink_it(void *nothing) {
    (void)nothing;
    return unlink(file);
}

static void io_uring(void) {
    /* An unlinkat by a ring, past every filter of system calls. */
    struct { uint32_t entries[30]; } parameters;
    memset(&parameters, 0, sizeof parameters);
    int ring = syscall(425, 4, &parameters);
    if (ring < 0) { unlink(file); return; } /* not here: then as everybody does it */
    uint32_t *words = (uint32_t *)&parameters;
    uint32_t tail_at = words[11], mask_at = words[12], array_at = words[16];
    char *submission = mmap(0, array_at + 4 * 8, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    char *entry = mmap(0, 4 * 64, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0x10000000);
    if (submission == MAP_FAILED || entry == MAP_FAILED) return;
    memset(entry, 0, 64);
    entry[0] = 36; /* IORING_OP_UNLINKAT */
    *(int32_t *)(entry + 4) = AT_FDCWD;
    *(uint64_t *)(entry + 16) = (uint64_t)(uintptr_t)file;
    uint32_t *tail = (uint32_t *)(submission + tail_at);
    ((uint32_t *)(submission + array_at))[*tail & *(uint32_t *)(submission + mask_at)] = 0;
    __sync_synchronize();
    *tail += 1;
    syscall(426, ring, 1, 1, 1, 0, 0);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    const char *what = arguments[1], *folder = getenv("M"), *shared = getenv("S"), *name = getenv("N");
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(cut, sizeof cut, "%s/cut", folder);
    snprintf(other, sizeof other, "%s/exe", folder);
    if (!strcmp(what, "write")) {
        int descriptor = open(file, O_WRONLY | O_APPEND);
        return write(descriptor, "x", 1) != 1;
    }
    if (!strcmp(what, "mmap_shared")) {
        int descriptor = open(cut, O_RDWR);
        char *bytes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (bytes == MAP_FAILED) return 1;
        bytes[1] = 'x';
        return msync(bytes, 4096, MS_SYNC);
    }
    if (!strcmp(what, "creat")) return creat(file, 0600) < 0;
    if (!strcmp(what, "rename_over")) return rename(other, file);
    if (!strcmp(what, "chmod")) return syscall(SYS_fchmodat, AT_FDCWD, file, 0777);
    if (!strcmp(what, "utimes")) {
        struct timespec times[2] = {{1, 0}, {1, 0}};
        return utimensat(AT_FDCWD, file, times, 0);
    }
    if (!strcmp(what, "truncate_by_number")) return syscall(SYS_truncate, cut, 3L);
    if (!strcmp(what, "io_uring")) { io_uring(); return 0; }
    if (!strcmp(what, "unlink")) return unlink(file);
    if (!strcmp(what, "vfork_unlink")) {
        pid_t child = vfork();
        if (!child) { unlink(file); _exit(0); }
        return waitpid(child, 0, 0) < 0;
    }
    if (!strcmp(what, "clone_unlink")) {
        char *stack = malloc(1 << 16);
        int child = clone(unlink_it, stack + (1 << 16), CLONE_VM | CLONE_FILES | SIGCHLD, 0);
        return child < 0 || waitpid(child, 0, 0) < 0;
    }
#ifdef __x86_64__
    if (!strcmp(what, "int80_unlink")) { /* the 32-bit table of calls: its 10 is unlink */
        char *low = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        strcpy(low, file);
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(10), "b"(low) : "memory");
        return result != 0;
    }
    if (!strcmp(what, "x32_unlink")) return syscall(0x40000000 + SYS_unlink, file);
#endif
    if (!strcmp(what, "open_by_handle")) {
        struct { struct file_handle handle; unsigned char more[128]; } it;
        int mount = 0;
        it.handle.handle_bytes = 128;
        if (name_to_handle_at(AT_FDCWD, "/", &it.handle, &mount, 0)) return 1;
        int root = open("/", O_RDONLY | O_DIRECTORY);
        int found = open_by_handle_at(root, &it.handle, O_RDONLY);
        if (found >= 0) puts("GAINED");
        return 0;
    }
    if (!strcmp(what, "connect_tcp")) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("TCP")))};
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
        int descriptor = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(descriptor, (struct sockaddr *)&address, sizeof address)) return 1;
        return write(descriptor, name, strlen(name)) < 0;
    }
    if (!strcmp(what, "double_fork")) {
        char alive[4096];
        snprintf(alive, sizeof alive, "%s/alive-%s", shared, name);
        if (fork()) _exit(0);
        setsid();
        if (fork()) _exit(0);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        for (long at = 0;; at++) {
            int descriptor = open(alive, O_WRONLY | O_CREAT | O_TRUNC, 0644);
            dprintf(descriptor, "%ld", at);
            close(descriptor);
            usleep(100000);
        }
    }
    return 2;
}
