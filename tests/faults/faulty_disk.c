/* A disk that fails when it is told to: put before libc with LD_PRELOAD, it sees every call that a process makes about files below one
   directory, whichever language made it, counts them, and lets the call of a given number fail, or that one and all after it.

   Calls that libc makes inside of itself (stdio, opendir) are not seen; nothing here writes through them. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, CREATE, WRITE, SYNC, RENAME, TRUNCATE, MKDIR, UNLINK, CHMOD, CLOSE, READ, KINDS };
static const char *const NAMES[KINDS] = {"open",  "create", "write", "sync",  "rename", "truncate",
                                         "mkdir", "unlink", "chmod", "close", "read"};

static char directory[PATH_MAX];
static size_t directory_length;
static unsigned watched;
static long failing;
static int error_number, keeps_failing, log_file = -1;
static atomic_long calls;

/* `kinds` has a bit for each kind of call that counts; `number` is that of the call to fail, from 1, or 0 for none. */
void faulty_disk_arm(const char *where, unsigned kinds, long number, int error, int keep_on, const char *log_path) {
  watched = 0;
  if (log_file >= 0) syscall(SYS_close, log_file);
  failing = number, error_number = error, keeps_failing = keep_on;
  log_file = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  atomic_store(&calls, 0);
  snprintf(directory, sizeof directory, "%s", where);
  directory_length = strlen(directory);
  watched = kinds;
}

static int is_below(const char *path) {
  return !strncmp(path, directory, directory_length) &&
         (path[directory_length] == '/' || path[directory_length] == '\0' || path[directory_length] == ' ');
}

static int of_descriptor(int descriptor, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length <= 0 || path[0] != '/') return 0;
  path[length] = '\0';
  return 1;
}

static int of_path(int folder, const char *given, char *path) {
  if (!given) return 0;
  if (given[0] == '/') return snprintf(path, PATH_MAX, "%s", given) > 0;
  char base[PATH_MAX];
  if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !of_descriptor(folder, base)) return 0;
  return snprintf(path, PATH_MAX, "%s/%s", base, given) > 0;
}

/* 0: let it pass; 1: fail; 2: fail from now on, and this is the first. */
static int verdict(enum kind kind, const char *path) {
  if (!is_below(path)) return 0;
  long number = atomic_fetch_add(&calls, 1) + 1;
  int fails = failing && (keeps_failing ? number >= failing : number == failing);
  if (log_file >= 0 && (fails || !failing)) {
    char line[PATH_MAX + 32];
    int length = snprintf(line, sizeof line, "%s %s\n", NAMES[kind], path + directory_length);
    syscall(SYS_write, log_file, line, (size_t)length);
  }
  if (!fails) return 0;
  errno = error_number;
  return keeps_failing && number == failing ? 2 : 1;
}

static int counts(enum kind kind) { return directory_length && (watched >> kind & 1); }

static int at_path(enum kind kind, int folder, const char *given) {
  char path[PATH_MAX];
  int before = errno, found = counts(kind) && of_path(folder, given, path);
  errno = before;
  return found ? verdict(kind, path) : 0;
}

static int at_descriptor(enum kind kind, int descriptor) {
  char path[PATH_MAX];
  int before = errno, found = counts(kind) && of_descriptor(descriptor, path);
  errno = before;
  return found ? verdict(kind, path) : 0;
}

#define REAL(type, name, ...)                                      \
  static type (*real)(__VA_ARGS__);                                \
  if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

#define OPEN_LIKE(name)                                                                   \
  int name(const char *path, int flags, ...) {                                            \
    mode_t mode = 0;                                                                      \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                  \
      va_list rest;                                                                       \
      va_start(rest, flags);                                                              \
      mode = (mode_t)va_arg(rest, int);                                                   \
      va_end(rest);                                                                       \
    }                                                                                     \
    REAL(int, #name, const char *, int, ...);                                             \
    return at_path(flags & O_CREAT ? CREATE : OPEN, AT_FDCWD, path) ? -1 : real(path, flags, mode); \
  }
OPEN_LIKE(open)
OPEN_LIKE(open64)

#define OPENAT_LIKE(name)                                                                 \
  int name(int folder, const char *path, int flags, ...) {                                \
    mode_t mode = 0;                                                                      \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                  \
      va_list rest;                                                                       \
      va_start(rest, flags);                                                              \
      mode = (mode_t)va_arg(rest, int);                                                   \
      va_end(rest);                                                                       \
    }                                                                                     \
    REAL(int, #name, int, const char *, int, ...);                                        \
    return at_path(flags & O_CREAT ? CREATE : OPEN, folder, path) ? -1 : real(folder, path, flags, mode); \
  }
OPENAT_LIKE(openat)
OPENAT_LIKE(openat64)

#define OPEN_2_LIKE(name)                                              \
  int name(const char *path, int flags) {                              \
    REAL(int, #name, const char *, int);                               \
    return at_path(OPEN, AT_FDCWD, path) ? -1 : real(path, flags);     \
  }
OPEN_2_LIKE(__open_2)
OPEN_2_LIKE(__open64_2)

#define CREAT_LIKE(name)                                               \
  int name(const char *path, mode_t mode) {                            \
    REAL(int, #name, const char *, mode_t);                            \
    return at_path(CREATE, AT_FDCWD, path) ? -1 : real(path, mode);    \
  }
CREAT_LIKE(creat)
CREAT_LIKE(creat64)

#define FOPEN_LIKE(name)                                                                            \
  FILE *name(const char *path, const char *mode) {                                                  \
    REAL(FILE *, #name, const char *, const char *);                                                \
    return at_path(strpbrk(mode, "wa+") ? CREATE : OPEN, AT_FDCWD, path) ? NULL : real(path, mode); \
  }
FOPEN_LIKE(fopen)
FOPEN_LIKE(fopen64)

/* A disk does not become full between two writes but in the middle of one, of which it takes the first half. */
ssize_t write(int file, const void *content, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  int said = at_descriptor(WRITE, file);
  if (said == 2 && size > 1) return real(file, content, size / 2);
  return said ? -1 : real(file, content, size);
}

#define PWRITE_LIKE(name)                                                     \
  ssize_t name(int file, const void *content, size_t size, off_t place) {     \
    REAL(ssize_t, #name, int, const void *, size_t, off_t);                   \
    int said = at_descriptor(WRITE, file);                                    \
    if (said == 2 && size > 1) return real(file, content, size / 2, place);   \
    return said ? -1 : real(file, content, size, place);                      \
  }
PWRITE_LIKE(pwrite)
PWRITE_LIKE(pwrite64)

ssize_t writev(int file, const struct iovec *parts, int count) {
  REAL(ssize_t, "writev", int, const struct iovec *, int);
  return at_descriptor(WRITE, file) ? -1 : real(file, parts, count);
}

ssize_t read(int file, void *content, size_t size) {
  REAL(ssize_t, "read", int, void *, size_t);
  return at_descriptor(READ, file) ? -1 : real(file, content, size);
}

ssize_t __read_chk(int file, void *content, size_t size, size_t room) {
  REAL(ssize_t, "__read_chk", int, void *, size_t, size_t);
  return at_descriptor(READ, file) ? -1 : real(file, content, size, room);
}

#define PREAD_LIKE(name)                                                      \
  ssize_t name(int file, void *content, size_t size, off_t place) {           \
    REAL(ssize_t, #name, int, void *, size_t, off_t);                         \
    return at_descriptor(READ, file) ? -1 : real(file, content, size, place); \
  }
PREAD_LIKE(pread)
PREAD_LIKE(pread64)

ssize_t readv(int file, const struct iovec *parts, int count) {
  REAL(ssize_t, "readv", int, const struct iovec *, int);
  return at_descriptor(READ, file) ? -1 : real(file, parts, count);
}

/* Nothing is really brought to the disk: no power is cut here, and it takes most of the time. */
#define SYNC_LIKE(name)                                                     \
  int name(int file) {                                                      \
    return at_descriptor(SYNC, file) || fcntl(file, F_GETFD) < 0 ? -1 : 0;  \
  }
SYNC_LIKE(fsync)
SYNC_LIKE(fdatasync)

/* Whatever it says, the descriptor is gone afterwards, as on Linux. */
int close(int file) {
  REAL(int, "close", int);
  int said = at_descriptor(CLOSE, file), kept = errno, done = real(file);
  if (!said) return done;
  errno = kept;
  return -1;
}

int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  return at_path(RENAME, AT_FDCWD, to) ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  REAL(int, "renameat", int, const char *, int, const char *);
  return at_path(RENAME, to_folder, to) ? -1 : real(from_folder, from, to_folder, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
  return at_path(RENAME, to_folder, to) ? -1 : real(from_folder, from, to_folder, to, flags);
}

#define FTRUNCATE_LIKE(name)                                          \
  int name(int file, off_t size) {                                    \
    REAL(int, #name, int, off_t);                                     \
    return at_descriptor(TRUNCATE, file) ? -1 : real(file, size);     \
  }
FTRUNCATE_LIKE(ftruncate)
FTRUNCATE_LIKE(ftruncate64)

#define FALLOCATE_LIKE(name)                                                        \
  int name(int file, off_t place, off_t size) {                                     \
    REAL(int, #name, int, off_t, off_t);                                            \
    return at_descriptor(TRUNCATE, file) ? error_number : real(file, place, size);  \
  }
FALLOCATE_LIKE(posix_fallocate)
FALLOCATE_LIKE(posix_fallocate64)

int mkdir(const char *path, mode_t mode) {
  REAL(int, "mkdir", const char *, mode_t);
  return at_path(MKDIR, AT_FDCWD, path) ? -1 : real(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
  REAL(int, "mkdirat", int, const char *, mode_t);
  return at_path(MKDIR, folder, path) ? -1 : real(folder, path, mode);
}

#define OF_PATH(name, kind)                                       \
  int name(const char *path) {                                    \
    REAL(int, #name, const char *);                               \
    return at_path(kind, AT_FDCWD, path) ? -1 : real(path);       \
  }
OF_PATH(unlink, UNLINK)
OF_PATH(rmdir, UNLINK)

int unlinkat(int folder, const char *path, int flags) {
  REAL(int, "unlinkat", int, const char *, int);
  return at_path(UNLINK, folder, path) ? -1 : real(folder, path, flags);
}

int chmod(const char *path, mode_t mode) {
  REAL(int, "chmod", const char *, mode_t);
  return at_path(CHMOD, AT_FDCWD, path) ? -1 : real(path, mode);
}

int fchmod(int file, mode_t mode) {
  REAL(int, "fchmod", int, mode_t);
  return at_descriptor(CHMOD, file) ? -1 : real(file, mode);
}

int fchmodat(int folder, const char *path, mode_t mode, int flags) {
  REAL(int, "fchmodat", int, const char *, mode_t, int);
  return at_path(CHMOD, folder, path) ? -1 : real(folder, path, mode, flags);
}
