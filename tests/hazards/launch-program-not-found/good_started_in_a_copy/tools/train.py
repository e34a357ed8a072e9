from lib import rows

print(rows)
