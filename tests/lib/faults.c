/* Faults of the machine, for one process: preloaded into a member, it makes syncs fail, wait or take long and shifts the wall
 * clock, as the file that BATON_FAULTS names says, which is mapped and so may change while the member runs (machine_faults.py
 * writes it).
 *
 * The monotonic clock stays true, as on a machine whose wall clock is set. Not covered: writes that fail (a small file system
 * does that for real), clocks read without the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct faults {
  volatile int64_t clock_shift_seconds;
  volatile int64_t syncs_fail;   /* what for: an errno */
  volatile int64_t syncs_failed; /* how often one did */
  volatile int64_t syncs_wait;   /* a disk that does not answer */
  volatile int64_t syncs_slow;   /* a disk that answers late: by so many milliseconds */
};

static struct faults none;
static struct faults *faults = &none;

__attribute__((constructor)) static void map_faults(void) {
  const char *path = getenv("BATON_FAULTS");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *mapped = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) abort();
  faults = mapped;
}

static int synced(int fd, long call) {
  for (int64_t waited = 0; faults->syncs_wait || waited < faults->syncs_slow; waited++) usleep(1000);
  if (faults->syncs_fail) {
    __sync_fetch_and_add(&faults->syncs_failed, 1);
    errno = (int)faults->syncs_fail;
    return -1;
  }
  return (int)syscall(call, fd);
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

static int is_wall_clock(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && is_wall_clock(clock)) now->tv_sec += faults->clock_shift_seconds;
  return result;
}

int gettimeofday(struct timeval *now, void *zone) {
  (void)zone;
  struct timespec precise;
  int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t *stored) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (stored) *stored = precise.tv_sec;
  return precise.tv_sec;
}

/* Waits until a moment of the shifted clock, for which the kernel knows only the true one. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
  static int (*true_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!true_wait) {
    *(void **)&true_wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!true_wait) *(void **)&true_wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (!true_wait) abort();
  }
  struct timespec moved = *until;
  moved.tv_sec -= faults->clock_shift_seconds;
  return true_wait(condition, mutex, &moved);
}
