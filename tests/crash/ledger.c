/* Keeps a ledger of what was synced: preloaded into a member, it notes after every fsync and fdatasync how far the file
 * had been written before the call, as lines "length path" in the file that BATON_SYNC_LEDGER names.
 *
 * Of logs the end of the last write, by whichever descriptor, and not the file's size: they are written over older ones, whose bytes are
 * no part of them. Of all else the size, which is what the kernel syncs: a table that the database takes in was written under another
 * name, and the database syncs it again under its own. With it a test can take away what a loss of power could take: whatever a file was
 * given after its last sync. It trusts nobody's word about what was synced but the kernel's. And it notes, as "early path", when a log is
 * written to while another has bytes that are not synced: those could be lost, and not what was written after them.
 * Not covered: directory entries (a created or renamed file is taken to be durable), pages written through mmap. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ledger = -1;

/* How far each log is written and synced, by inode. A place is taken for good: files are written over, inodes given to the next. */
struct progress { ino_t inode; off_t written, synced; };
static struct progress logs[4096];
static pthread_mutex_t logs_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void open_ledger(void) {
  const char *path = getenv("BATON_SYNC_LEDGER");
  if (path) ledger = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_log(const char *path) {
  size_t length = strlen(path);
  return length > 4 && strcmp(path + length - 4, ".log") == 0;
}

static void note(const char *line, int length) {
  if (syscall(SYS_write, ledger, line, length) != length) abort();
}

static void path_of(int fd, char path[4096]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t end = readlink(link, path, 4095);
  if (end < 0) abort();
  path[end] = 0;
}

/* Of the log with this inode; NULL: it has no place, and is to be given none. */
static struct progress *progress(ino_t inode, int takes) {
  for (size_t at = 0; at < sizeof logs / sizeof *logs; at++) {
    if (logs[at].inode == inode) return &logs[at];
    if (logs[at].inode == 0) {
      if (!takes) return NULL;
      logs[at].inode = inode;
      return &logs[at];
    }
  }
  abort();
}

static void note_written(int fd, off_t end) {
  struct stat file;
  if (ledger < 0 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) return;
  pthread_mutex_lock(&logs_lock);
  struct progress *log = progress(file.st_ino, 0);
  char path[4096], line[4160];
  if (log) path_of(fd, path);
  if (log && !is_log(path)) {
    /* The log is gone, and its inode another file's. */
    log->written = log->synced = 0;
  } else if (log) {
    int begins = log->written == 0, early = 0;
    for (struct progress *other = logs; begins && other->inode; other++) early |= other->synced < other->written;
    log->written = end;
    if (early) note(line, snprintf(line, sizeof line, "early %s\n", path));
  }
  pthread_mutex_unlock(&logs_lock);
}

/* Whoever opens a log to write begins it, whatever the file holds. */
static int opened(const char *path, int flags, mode_t mode) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  struct stat file;
  if (ledger >= 0 && fd >= 0 && (flags & O_ACCMODE) != O_RDONLY && is_log(path) && fstat(fd, &file) == 0) {
    pthread_mutex_lock(&logs_lock);
    struct progress *log = progress(file.st_ino, 1);
    log->written = log->synced = 0;
    pthread_mutex_unlock(&logs_lock);
  }
  return fd;
}

#define OPEN(name)                                                \
  int name(const char *path, int flags, ...) {                    \
    va_list rest;                                                 \
    va_start(rest, flags);                                        \
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;     \
    va_end(rest);                                                 \
    return opened(path, flags, mode);                             \
  }
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *bytes, size_t count) {
  ssize_t result = syscall(SYS_write, fd, bytes, count);
  if (result > 0) note_written(fd, lseek(fd, 0, SEEK_CUR));
  return result;
}

static int synced(int fd, long call) {
  struct stat before;
  char path[4096], line[4160];
  int known = ledger >= 0 && fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
  off_t length = known ? before.st_size : 0;
  struct progress *log = NULL;
  if (known) path_of(fd, path);
  if (known && is_log(path)) {
    pthread_mutex_lock(&logs_lock);
    log = progress(before.st_ino, 0);
    length = log ? log->written : 0;
    pthread_mutex_unlock(&logs_lock);
  }
  int result = (int)syscall(call, fd);
  if (result == 0 && known) note(line, snprintf(line, sizeof line, "%lld %s\n", (long long)length, path));
  if (result == 0 && log) {
    pthread_mutex_lock(&logs_lock);
    if (length <= log->written && length > log->synced) log->synced = length;
    pthread_mutex_unlock(&logs_lock);
  }
  return result;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
