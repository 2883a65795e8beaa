/* Writes that fail: preloaded into a process, for files below CSI_FAILING_DIR, as the shared control block says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, FAIL, SHORT, TORN, SYNC };

struct control {
  int32_t mode;    /* what happens to a write: nothing, EIO, half of it, half of it and then EIO; SYNC: fsync gives EIO */
  int32_t percent; /* to how many of them */
  int64_t skip;    /* after so many writes; then to one only, where percent is 0 */
  int64_t writes;  /* counted by all processes */
  int64_t hits;
};

static struct control *control;
static const char *dir;
static size_t dir_length;

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("CSI_FAILING_CONTROL");
  dir = getenv("CSI_FAILING_DIR");
  if (!path || !dir) return;
  dir_length = strlen(dir);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (found != MAP_FAILED) control = found;
}

static int is_ours(int fd) {
  char link[64], name[4096];
  int saved = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, name, sizeof name - 1);
  errno = saved;
  return length >= (ssize_t)dir_length && strncmp(name, dir, dir_length) == 0;
}

static int fate(int fd, int is_sync) {
  if (!control || !control->mode || is_sync != (control->mode == SYNC) || !is_ours(fd)) {
    return NONE;
  }
  int64_t number = __atomic_add_fetch(&control->writes, 1, __ATOMIC_SEQ_CST);
  int hit = control->percent ? number > control->skip && random() % 100 < control->percent : number == control->skip + 1;
  if (!hit) return NONE;
  __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
  return control->mode;
}

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
#define BROKEN(call, part)                       \
  switch (fate(fd, 0)) {                         \
    case FAIL: errno = EIO; return -1;           \
    case SHORT: size = part; break;              \
    case TORN: size = part; (void)!(call); errno = EIO; return -1; \
    default: break;                              \
  }                                              \
  return call;

#define HALF (size > 1 ? size / 2 : size)

ssize_t write(int fd, const void *data, size_t size) { BROKEN(REAL(write, fd, data, size), HALF) }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { BROKEN(REAL(pwrite, fd, data, size, at), HALF) }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { BROKEN(REAL(pwrite64, fd, data, size, at), HALF) }

static int sync_fate(int fd) {
  if (fate(fd, 1) == NONE) return 0;
  errno = EIO;
  return -1;
}

int fsync(int fd) { return sync_fate(fd) ? -1 : REAL(fsync, fd); }
int fdatasync(int fd) { return sync_fate(fd) ? -1 : REAL(fdatasync, fd); }
