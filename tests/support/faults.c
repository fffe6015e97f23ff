// Loaded with LD_PRELOAD: on the rank FAULT_RANK the call FAULT_CALL (open, write, fsync, rename or
// close) fails with EIO, after FAULT_SKIP calls that do not, for files that are written, and folders,
// whose paths contain FAULT_PATH. The first time that one fails, the file FAULT_LOG is made.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int (*next_open(void))(const char*, int, ...) {
  return (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
}

static int fails(const char* call, const char* path) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  const char* chosen = getenv("FAULT_RANK");
  const char* wanted = getenv("FAULT_CALL");
  const char* part = getenv("FAULT_PATH");
  if (!chosen || !wanted || !part || strcmp(rank ? rank : "0", chosen) != 0) return 0;
  if (strcmp(wanted, call) != 0 || strstr(path, part) == NULL) return 0;
  static int made = 0;
  const char* skip = getenv("FAULT_SKIP");
  if (made++ < (skip ? atoi(skip) : 0)) return 0;
  const char* log = getenv("FAULT_LOG");
  if (log) {
    const int file = next_open()(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0) ((int (*)(int))dlsym(RTLD_NEXT, "close"))(file);
  }
  errno = EIO;
  return 1;
}

static int file_fails(const char* call, int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  if (strcmp(call, "close") == 0 && (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY) return 0;
  return fails(call, path);
}

static int open_fails(const char* path, int flags) {
  return (flags & O_ACCMODE) != O_RDONLY && fails("open", path);
}

#define DEFINE_OPEN(name)                                                          \
  int name(const char* path, int flags, ...) {                                     \
    va_list arguments;                                                             \
    va_start(arguments, flags);                                                    \
    const mode_t mode = (flags & O_CREAT) ? va_arg(arguments, mode_t) : 0;         \
    va_end(arguments);                                                             \
    if (open_fails(path, flags)) return -1;                                        \
    return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_PWRITE(name, offset)                                                          \
  ssize_t name(int file, const void* bytes, size_t count, offset at) {                       \
    if (file_fails("write", file)) return -1;                                                \
    return ((ssize_t(*)(int, const void*, size_t, offset))dlsym(RTLD_NEXT, #name))(file, bytes, \
                                                                                   count, at); \
  }
DEFINE_PWRITE(pwrite, off_t)
DEFINE_PWRITE(pwrite64, off64_t)

ssize_t write(int file, const void* bytes, size_t count) {
  if (file_fails("write", file)) return -1;
  return ((ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write"))(file, bytes, count);
}

int fsync(int file) {
  if (file_fails("fsync", file)) return -1;
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int close(int file) {
  const int failed = file_fails("close", file);
  const int result = ((int (*)(int))dlsym(RTLD_NEXT, "close"))(file);
  if (failed) errno = EIO;
  return failed ? -1 : result;
}

int rename(const char* from, const char* to) {
  if (fails("rename", from)) return -1;
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
