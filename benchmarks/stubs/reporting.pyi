from benchmarks.reporting import *
