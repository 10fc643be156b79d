/* Keeps a ledger of what was synced: preloaded into a member, it notes after every fsync and fdatasync how far the
 * descriptor had written before the call, as lines "length path" in the file that BATON_SYNC_LEDGER names.
 *
 * Of logs the position, not the file's size: they are written over older ones, whose bytes are no part of them. Of all else the size,
 * which is what the kernel syncs, whoever has written it: a table that the database takes in was written by another descriptor, and
 * under another name, and the database syncs it again under its own. With it a test can take away what a loss of power could take: whatever a file was given after its last sync. It trusts nobody's word about what was synced but the kernel's.
 * Not covered: directory entries (a created or renamed file is taken to be durable), pages written through mmap. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ledger = -1;

__attribute__((constructor)) static void open_ledger(void) {
  const char *path = getenv("BATON_SYNC_LEDGER");
  if (path) ledger = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int synced(int fd, long call) {
  struct stat before;
  int known = ledger >= 0 && fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
  off_t position = known ? lseek(fd, 0, SEEK_CUR) : 0;
  int result = (int)syscall(call, fd);
  if (result == 0 && known) {
    char link[64], path[4096], line[4128];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t end = readlink(link, path, sizeof path);
    if (end < 0) abort();
    int is_log = end > 4 && memcmp(path + end - 4, ".log", 4) == 0;
    off_t written = is_log ? position : before.st_size;
    int length = snprintf(line, sizeof line, "%lld %.*s\n", (long long)written, (int)end, path);
    if (write(ledger, line, length) != length) abort();
  }
  return result;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
