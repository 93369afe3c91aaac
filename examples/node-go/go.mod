module node-go

go 1.24
