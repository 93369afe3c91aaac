from benchmarks.chains import *
