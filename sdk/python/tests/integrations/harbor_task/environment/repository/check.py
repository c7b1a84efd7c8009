from adder import add

assert add(2, 3) == 5
