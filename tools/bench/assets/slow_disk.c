/* Delays each sync by two milliseconds. The benchmark preloads it (LD_PRELOAD) into servers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <time.h>

typedef int (*sync_fn)(int);

static void wait_two_ms(void) {
    struct timespec left = {0, 2000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}

static int delayed(sync_fn sync, int fd) {
    int result = sync(fd);
    int error = errno;
    wait_two_ms();
    errno = error;
    return result;
}

int fsync(int fd) { return delayed((sync_fn)dlsym(RTLD_NEXT, "fsync"), fd); }

int fdatasync(int fd) { return delayed((sync_fn)dlsym(RTLD_NEXT, "fdatasync"), fd); }
