// The first process of every pod: holds its namespaces, reaps orphans, ends when told.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void End(int signal) {
  (void)signal;
  _exit(0);
}

static void Reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction reap = {.sa_handler = Reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGCHLD, &reap, NULL);
  signal(SIGINT, End);
  signal(SIGTERM, End);
  for (;;) pause();
}
