from benchmarks.asking import *
